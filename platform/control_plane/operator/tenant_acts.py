"""What an operator may do on a tenant's screen. Each act is a form, a permission and one call of a service."""

import uuid
from datetime import UTC, datetime, time
from typing import Any

from django import forms

from control_plane.operator.acts import Act, ActForm, acts_by_name
from control_plane.operator.price_forms import moment_field
from control_plane.operator.quota_bars import resource_choices, resource_name
from control_plane.templatetags.operator import amount
from tenants.billing.invoices.services import invoice_draft
from tenants.billing.ledger.credits import AMOUNT_MAX, credit_grant, mode_set, payment_record
from tenants.billing.models import BillingMode, Invoice, InvoiceState, PricePlan
from tenants.billing.prices.plans import tenant_plan_set
from tenants.models import Tenant, TenantState, User
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set, quota_withdraw
from tenants.services import tenant_pause, tenant_resume


def _date(label: str, help_text: str = "", *, required: bool = True) -> forms.DateField:
    widget = forms.DateInput(attrs={"type": "date"})
    return forms.DateField(label=label, help_text=help_text, required=required, widget=widget)


def _reason() -> forms.CharField:
    return forms.CharField(label="Reason", max_length=500)


def _money() -> forms.DecimalField:
    return forms.DecimalField(label="Amount", max_digits=19, decimal_places=2, min_value=0, max_value=AMOUNT_MAX)


class PauseForm(ActForm):
    reason = _reason()


class ResumeForm(ActForm):
    reason = _reason()


class QuotaForm(ActForm):
    resource = forms.ChoiceField(choices=resource_choices())
    limit = forms.IntegerField(min_value=0, help_text="In the unit beside the name, else a count.")
    until = _date("Until", "End of that day, UTC. Empty: for good.", required=False)
    reason = _reason()


class WithdrawForm(ActForm):
    resource = forms.ChoiceField(choices=resource_choices())
    reason = _reason()


class CreditForm(ActForm):
    amount = _money()
    reason = _reason()
    # Made with the page: sent twice, the grant is booked once.
    reference = forms.CharField(max_length=200, widget=forms.HiddenInput, initial=lambda: f"operator-{uuid.uuid4()}")


class PaymentForm(ActForm):
    amount = _money()
    reference = forms.CharField(max_length=200, help_text="The bank's: it is booked once.")
    invoice = forms.ModelChoiceField(
        queryset=Invoice._base_manager.none(), required=False, empty_label="none: as credit"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        open_invoices = Invoice.objects.filter(tenant=self.subject, state=InvoiceState.FINAL, paid_at=None)
        self.fields["invoice"].queryset = open_invoices.order_by("-period_start")  # type: ignore[attr-defined]


class PlanForm(ActForm):
    plan = forms.ModelChoiceField(queryset=PricePlan.objects.none())
    valid_from = moment_field()
    reason = _reason()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plans = PricePlan.objects.filter(currency=self.subject.currency)
        self.fields["plan"].queryset = plans.order_by("code")  # type: ignore[attr-defined]


class DraftForm(ActForm):
    month = forms.DateField(
        input_formats=["%Y-%m"], widget=forms.DateInput(attrs={"type": "month"}), help_text="As 2026-11."
    )


class ModeForm(ActForm):
    mode = forms.ChoiceField(choices=BillingMode.choices)
    reason = _reason()


def _pause(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    tenant_pause(by=by, tenant=tenant, reason=data["reason"])
    return f"{tenant.name} is paused: new jobs are refused, queued ones wait."


def _resume(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    tenant_resume(by=by, tenant=tenant, reason=data["reason"])
    return f"{tenant.name} works again."


def _quota(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    until = data["until"]
    expires_at = datetime.combine(until, time.max, UTC).replace(microsecond=0) if until else None
    resource = Resource(data["resource"])
    quota_set(
        by=by,
        tenant=tenant,
        resource=resource,
        limit=data["limit"],
        expires_at=expires_at,
        reason=data["reason"],
    )
    ending = f" until the end of {until:%Y-%m-%d}, UTC" if until else ""
    return f"The limit of {resource_name(resource)} is {data['limit']:,}{ending}."


def _withdraw(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    resource = Resource(data["resource"])
    name = resource_name(resource)
    if quota_withdraw(by=by, tenant=tenant, resource=resource, reason=data["reason"]):
        return f"{tenant.name} is back to the platform's limit of {name}."
    return f"{tenant.name} has no limit of its own of {name}."


def _credit(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    credit_grant(by=by, tenant=tenant, amount=data["amount"], reason=data["reason"], reference=data["reference"])
    return f"{data['amount']:,} {tenant.currency} of credit granted to {tenant.name}."


def _payment(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    payment_record(by=by, tenant=tenant, amount=data["amount"], reference=data["reference"], invoice=data["invoice"])
    what = f"for invoice {data['invoice']}" if data["invoice"] else "as credit"
    return f"{data['amount']:,} {tenant.currency} recorded {what}."


def _plan(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    row = tenant_plan_set(by=by, tenant=tenant, **data)
    return f"{tenant.name} is on plan {row.plan.name} from {row.valid_from:%Y-%m-%d %H:%M} UTC on."


def _draft(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    invoice = invoice_draft(tenant=tenant, month=data["month"])
    if invoice is None:
        return f"{tenant.name} used nothing in {data['month']:%Y-%m}: there is nothing to bill."
    return f"{str(invoice).capitalize()}: {amount(invoice.total, invoice.currency)}. It is listed under Invoices."


def _mode(by: User, tenant: Tenant, data: dict[str, Any]) -> str:
    mode_set(by=by, tenant=tenant, mode=data["mode"], reason=data["reason"])
    return f"{tenant.name} is {data['mode']} from now on."


TENANTS, QUOTAS, MONEY = "tenants.change_tenant", "quotas.add_quota", "billing.add_ledgertransaction"
ACTS = acts_by_name(
    Act(
        name="pause",
        title="Pause",
        permission=TENANTS,
        form=PauseForm,
        do=_pause,
        button="Pause this tenant",
        offered=lambda tenant: tenant.state == TenantState.ACTIVE,
    ),
    Act(
        name="resume",
        title="Resume",
        permission=TENANTS,
        form=ResumeForm,
        do=_resume,
        button="Resume this tenant",
        offered=lambda tenant: tenant.state == TenantState.PAUSED,
    ),
    Act(name="quota", title="Set a limit", permission=QUOTAS, form=QuotaForm, do=_quota, button="Set the limit"),
    Act(
        name="withdraw",
        title="Back to the platform's limit",
        permission=QUOTAS,
        form=WithdrawForm,
        do=_withdraw,
        button="Withdraw its own limit",
    ),
    Act(name="credit", title="Grant credit", permission=MONEY, form=CreditForm, do=_credit, button="Grant credit"),
    Act(
        name="payment",
        title="Record a payment",
        permission=MONEY,
        form=PaymentForm,
        do=_payment,
        button="Record the payment",
    ),
    Act(
        name="plan",
        title="Change the plan",
        permission="billing.add_tenantplan",
        form=PlanForm,
        do=_plan,
        button="Set the plan",
    ),
    Act(
        name="draft",
        title="Draft a month's invoice",
        permission="billing.change_invoice",
        form=DraftForm,
        do=_draft,
        button="Draft it",
    ),
    Act(
        name="mode",
        title="Prepaid or invoiced",
        permission="billing.change_billingaccount",
        form=ModeForm,
        do=_mode,
        button="Change",
    ),
)
