"""What operators do about the books: have them compared now, and say that a difference was looked at."""

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from jobs.services.outbox import RECONCILE_BOOKS, outbox_add
from tenants.audit.services import audit
from tenants.billing.models import ReconciliationDifference, ReconciliationRun
from tenants.errors import ApplicationError
from tenants.models import User
from tenants.scope import platform_scope

RUNS_AT_MOST = timedelta(hours=2)  # the time limit of `jobs.tasks.reconcile_books`


@transaction.atomic
def reconcile_ask(*, by: User) -> None:
    """Have a worker compare the books, which may take long. Raises ApplicationError 409 during a run."""
    began = timezone.now() - RUNS_AT_MOST
    if ReconciliationRun.objects.filter(finished_at=None, started_at__gt=began).exists():
        detail = "The books are being compared already; the result will be listed here."
        raise ApplicationError(code="reconciliation_running", status=409, detail=detail)
    outbox_add(topic=RECONCILE_BOOKS, key=str(by.pk))


@transaction.atomic
def difference_see(*, by: User, difference: ReconciliationDifference, reason: str = "") -> bool:
    """Say that somebody has looked at a difference, and what it was: the alert ends. False if it was seen before."""
    with platform_scope():
        unseen = ReconciliationDifference.objects.filter(pk=difference.pk, seen_at=None)
        if not unseen.update(seen_at=timezone.now(), seen_by=by):
            return False
        found = {"check": difference.check_name, "expected": difference.expected, "found": difference.found}
        audit(
            by=by, verb="difference.seen", target=difference, tenant=None, name=difference.subject,
            after=found, reason=reason,
        )  # fmt: skip
    return True
