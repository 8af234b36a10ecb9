"""Comparing what was measured, metered, rated, booked and billed. A difference is a row, and somebody looks."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.utils import timezone

from jobs.models import Job
from jobs.selectors.money import reconcile_billing as measured_and_metered
from jobs.states import TERMINAL
from tenants.audit.services import audit
from tenants.billing.models import Hold, ReconciliationDifference, ReconciliationRun
from tenants.billing.reconcile import CHECKS, Check, Comparison
from tenants.models import Tenant, User
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)

NIGHTLY = "nightly"
ROWS_PER_CHECK_MAX = 1000  # of more differences than that only the number is kept


def reconcile_billing(*, by: User | None = None) -> ReconciliationRun:
    """Run every check on one snapshot of the database and keep what differs. ``by`` None is the nightly run.

    A check that fails to run counts as a difference: silence is not health. Any difference is logged as an error.
    """
    with platform_scope():
        run = ReconciliationRun.objects.create(started_at=timezone.now(), by=by.email if by else NIGHTLY)
        with _snapshot():
            results = {name: _timed(check) for name, check in all_checks().items()}
        with transaction.atomic():
            for name, (books, _) in results.items():
                _keep(run, name, books)
            run.figures = {
                name: {"compared": books.compared, "differences": len(books.differences), "seconds": seconds}
                for name, (books, seconds) in results.items()
            }
            run.difference_count = sum(len(books.differences) for books, _ in results.values())
            run.finished_at = timezone.now()
            run.save(update_fields=["figures", "difference_count", "finished_at"])
            if by is not None:
                after = {"differences": run.difference_count}
                audit(by=by, verb="billing.reconciled", target=run, tenant=None, after=after)
    if run.difference_count:
        broken = sorted(name for name, (books, _) in results.items() if books.differences)
        logger.error("reconciliation %s found %d differences in %s", run.pk, run.difference_count, ", ".join(broken))
    return run


def all_checks() -> dict[str, Check]:
    """Every check by its name, in the order of the money's way: measured, metered, rated, booked, billed."""
    return {
        "measured_time_is_metered": measured_time_is_metered,
        **CHECKS,
        "holds_have_live_jobs": holds_have_live_jobs,
    }


def measured_time_is_metered() -> Comparison:
    """The measured time of every service and tenant is on the meters, to the microsecond."""
    found = measured_and_metered()
    books = Comparison(compared=found.spans)
    known = {str(pk): pk for pk in Tenant.objects.values_list("pk", flat=True)}
    for span in found.unbalanced_spans:
        books.wrong(None, f"span {span}", "shares + overhead = busy time", "not equal")
    for service, difference_us in found.service_difference_us.items():
        for tenant_id, difference in difference_us.items():
            subject = f"{service} of {tenant_id}, metered minus measured"
            books.wrong(known.get(tenant_id), subject, "0 us", f"{difference} us")
    return books


def holds_have_live_jobs() -> Comparison:
    """Nothing is reserved for a job that has ended, or that there is not."""
    books = Comparison()
    holds = list(Hold.objects.filter(released_at=None).order_by("pk"))
    states = dict(Job.objects.filter(pk__in=[hold.job_id for hold in holds]).values_list("pk", "state"))
    for hold in holds:
        state = states.get(hold.job_id, "no such job")
        ended = state in TERMINAL or hold.job_id not in states
        books.equal(hold.tenant_id, f"open hold of job {hold.job_id}, {state}", False, ended)
    return books


def _timed(check: Check) -> tuple[Comparison, float]:
    began = time.perf_counter()
    try:
        books = check()
    except Exception as error:
        logger.exception("a check of the books cannot run")
        books = Comparison()
        books.wrong(None, "the check cannot run", "a result", f"{type(error).__name__}: {error}")
    return books, round(time.perf_counter() - began, 3)


def _keep(run: ReconciliationRun, name: str, books: Comparison) -> None:
    ReconciliationDifference.objects.bulk_create(
        ReconciliationDifference(
            run=run,
            check_name=name,
            tenant_id=difference.tenant_id,
            subject=difference.subject[:200],
            expected=difference.expected[:60],
            found=difference.found[:60],
        )
        for difference in books.differences[:ROWS_PER_CHECK_MAX]
    )


@contextmanager
def _snapshot() -> Iterator[None]:
    """Every check sees the same moment, though usage goes on coming in. Inside a transaction: that one's view."""
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield
    else:  # Django's own transactions on SQLite would keep every writer waiting
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
