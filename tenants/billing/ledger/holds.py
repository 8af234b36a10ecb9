"""What admitted jobs may still spend: a hold when a job enters, captured by its usage, released when it ends."""

from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone

from tenants.billing.ledger.books import ZERO, Entry, account_for_update, move
from tenants.billing.ledger.capture import Charge, usage_capture
from tenants.billing.models import Account, BillingAccount, BillingMode, Hold, LedgerKind
from tenants.billing.money import plain
from tenants.errors import ApplicationError
from tenants.models import Project, Tenant
from tenants.scope import platform_scope

__all__ = ["Charge", "hold_place", "hold_release", "reserved", "reserved_by_key", "usage_capture"]


@transaction.atomic
def hold_place(*, tenant: Tenant, job_id: UUID, project_id: UUID | None, key_id: UUID | None, amount: Decimal) -> Hold:
    """Reserve ``amount`` for a job that is being admitted; call it in the transaction that inserts the job.

    It counts against limits and budgets at once (`reserved`). Of a prepaid tenant it also moves out of the credit:
    raises ApplicationError 402 `insufficient_credit` if that does not suffice, and for an unknown cost (0) if there is
    no credit at all. A job has one open hold: a repeat returns it.
    """
    if amount < 0:
        raise ValueError(f"a hold needs an amount of at least 0; got {amount}")
    account = account_for_update(tenant.pk)
    with platform_scope():
        known = Hold.objects.filter(job_id=job_id, released_at=None).first()
        if known is not None:
            return known
        prepaid = account.mode == BillingMode.PREPAID
        if prepaid:
            _require_credit(account, tenant, amount)
        hold = Hold.objects.create(
            tenant=tenant,
            job_id=job_id,
            project_id=project_id,
            key_id=key_id,
            amount=amount,
            funded=amount if prepaid else ZERO,
        )
        _move_funds(hold, LedgerKind.HOLD, hold.funded)
    return hold


@transaction.atomic
def hold_release(*, job_id: UUID) -> Hold | None:
    """Give back what an ended job did not use. A job without an open hold stays as it is (None)."""
    with platform_scope():
        found = Hold.objects.filter(job_id=job_id, released_at=None).values_list("tenant_id", flat=True).first()
        if found is None:
            return None
        account_for_update(found)  # accounts before holds: the order of every lock
        hold = Hold.objects.select_for_update(no_key=True).filter(job_id=job_id, released_at=None).first()
        if hold is None:
            return None
        _move_funds(hold, LedgerKind.RELEASE, -(hold.funded - hold.captured_funds))
        hold.released_at = timezone.now()
        hold.save(update_fields=["released_at"])
    return hold


def reserved(tenant: Tenant, project: Project | None = None) -> Decimal:
    """What running and queued jobs may still spend: the open holds, less what their usage captured."""
    with platform_scope():
        holds = Hold.objects.filter(tenant=tenant, released_at=None)
        return _left(holds if project is None else holds.filter(project_id=project.pk))


def reserved_by_key(tenant: Tenant, key_id: UUID) -> Decimal:
    """The part of `reserved` that jobs of one API key hold."""
    with platform_scope():
        return _left(Hold.objects.filter(tenant=tenant, released_at=None, key_id=key_id))


def _left(holds: QuerySet[Hold]) -> Decimal:
    sums = holds.aggregate(amount=Sum("amount"), captured=Sum("captured"))  # of a difference it would be an integer
    return (sums["amount"] or ZERO) - (sums["captured"] or ZERO)


def _require_credit(account: BillingAccount, tenant: Tenant, amount: Decimal) -> None:
    if account.credit >= amount and account.credit > 0:
        return
    needed = f"{plain(amount)} {tenant.currency}" if amount else "some credit"
    raise ApplicationError(
        code="insufficient_credit",
        status=402,
        detail=f"This job needs {needed}; the free credit is {plain(account.credit)} {tenant.currency}.",
        extra={"needed": f"{amount:f}", "available": f"{account.credit:f}", "currency": tenant.currency},
    )


def _move_funds(hold: Hold, kind: LedgerKind, amount: Decimal) -> None:
    """Credit -> hold; back for a negative amount."""
    if amount:
        move(
            tenant_id=hold.tenant_id,
            kind=kind,
            reference=f"hold {hold.pk}",
            entries=(
                Entry(account=Account.CREDIT, amount=-amount),
                Entry(account=Account.HOLD, amount=amount, job_id=hold.job_id),
            ),
        )
