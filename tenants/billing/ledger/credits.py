"""What operators do with a tenant's money: grant credit, record a payment, change when it pays."""

from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from tenants.audit.services import audit
from tenants.billing.currencies import require_payable
from tenants.billing.ledger.books import Entry, account_for_update, move, outstanding
from tenants.billing.models import Account, BillingAccount, BillingMode, Invoice, InvoiceState, LedgerKind
from tenants.billing.models import LedgerTransaction as Transaction
from tenants.errors import invalid
from tenants.identity import Actor
from tenants.models import Tenant, User
from tenants.scope import platform_scope

AMOUNT_MAX = Decimal(1_000_000)  # of one act; a slip of the finger costs no more


@transaction.atomic
def credit_grant(*, by: Actor | User, tenant: Tenant, amount: Decimal, reason: str, reference: str) -> Transaction:
    """Give a tenant credit. Needs a reason; a ``reference`` is granted once, a repeat returns the first."""
    require_payable(amount, tenant.currency, at_most=AMOUNT_MAX)
    if not reason.strip():
        raise invalid("/reason", "required", "A grant needs a reason, which the tenant can read.")
    entries = (Entry(account=Account.PROMO, amount=-amount), Entry(account=Account.CREDIT, amount=amount))
    return _act(
        by, tenant, LedgerKind.GRANT, reference, entries, verb="credit.granted", reason=reason.strip(), amount=amount
    )


@transaction.atomic
def payment_record(
    *, by: Actor | User, tenant: Tenant, amount: Decimal, reference: str, invoice: Invoice | None = None
) -> Transaction:
    """Write down money that came in: for an invoice, or as credit. ``reference`` is the bank's, booked once.

    Raises ApplicationError for more than an invoice still asks for.
    """
    require_payable(amount, tenant.currency, at_most=AMOUNT_MAX)
    account_for_update(tenant.pk)
    to = Account.CREDIT
    if invoice is not None:
        to = Account.RECEIVABLE
        if not _known(tenant, LedgerKind.PAYMENT, reference):
            _require_owed(tenant, invoice, amount)
    entries = (Entry(account=Account.CASH, amount=-amount), Entry(account=to, amount=amount))
    booked = _act(
        by, tenant, LedgerKind.PAYMENT, reference, entries, verb="payment.recorded", amount=amount, invoice=invoice
    )
    if invoice is not None and not outstanding(invoice):
        with platform_scope():
            Invoice.objects.filter(pk=invoice.pk, paid_at=None).update(paid_at=timezone.now())
    return booked


@transaction.atomic
def mode_set(*, by: Actor | User, tenant: Tenant, mode: str, reason: str = "") -> BillingAccount:
    """Let a tenant pay before (prepaid) or after (invoiced). Jobs that hold credit go on using it."""
    if mode not in BillingMode.values:
        raise invalid("/mode", "unknown_mode", f"{mode!r} is not one of {BillingMode.values}.")
    account = account_for_update(tenant.pk)
    if account.mode != mode:
        before, account.mode = account.mode, mode
        with platform_scope():
            account.save(update_fields=["mode"])
        audit(
            by=by,
            verb="billing_mode.changed",
            target=account,
            tenant=tenant,
            before={"mode": before},
            after={"mode": mode},
            reason=reason,
        )
    return account


def _act(
    by: Actor | User,
    tenant: Tenant,
    kind: LedgerKind,
    reference: str,
    entries: tuple[Entry, ...],
    *,
    verb: str,
    amount: Decimal,
    reason: str = "",
    invoice: Invoice | None = None,
) -> Transaction:
    """Move, and write the act down if it is a new one."""
    if not reference.strip():
        raise invalid("/reference", "required", "It needs a reference, by which a repeat is known.")
    account_for_update(tenant.pk)
    repeated = _known(tenant, kind, reference)
    booked = move(
        tenant_id=tenant.pk,
        kind=kind,
        reference=reference,
        entries=entries,
        by=by,
        reason=reason,
        invoice=invoice,
    )
    if not repeated:
        after = {"amount": f"{amount:f}", "currency": tenant.currency, "reference": reference}
        if invoice is not None:
            after["invoice"] = str(invoice)
        audit(by=by, verb=verb, target=booked, tenant=tenant, after=after, reason=reason)
    return booked


def _known(tenant: Tenant, kind: LedgerKind, reference: str) -> bool:
    with platform_scope():
        return Transaction.objects.filter(tenant=tenant, kind=kind, reference=reference).exists()


def _require_owed(tenant: Tenant, invoice: Invoice, amount: Decimal) -> None:
    if invoice.tenant_id != tenant.pk or invoice.state != InvoiceState.FINAL:
        raise invalid("/invoice", "not_payable", "Only a final invoice of the tenant can be paid.")
    owed = outstanding(invoice)
    if amount > owed:
        raise invalid("/amount", "more_than_owed", f"Invoice {invoice} asks for {owed:f} more; got {amount}.")
