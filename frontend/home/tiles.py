"""The figures at the top of the home page that are not counts of jobs: success, money, device time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from frontend.evaluations import Rate, ReportUnreadable, read_report
from frontend.usage.month import Month, month_read
from jobs.models import ArtifactKind, Job
from jobs.selectors.jobs import artifact_list
from jobs.selectors.utilization import INFERENCE, TRAINING, WINDOW_S, UtilizationHistory, utilization_history
from tenants.billing.usage.periods import month_of
from tenants.models import Tenant

WINDOW_MIN = WINDOW_S // 60
_REPORTS = 5  # newest ones that are looked at: an unreadable or empty one does not hide the others


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestSuccess:
    """Success at end of the newest evaluation, over all its tasks."""

    job: Job
    rate: Rate


def newest_success(tenant: Tenant) -> NewestSuccess | None:
    """None where nothing was evaluated. One query."""
    reports = artifact_list(tenant, kind=ArtifactKind.EVALUATION).select_related("job").defer("job__spec")
    for artifact in reports[:_REPORTS]:
        try:
            rate = read_report(artifact.manifest).overall.at_end
        except ReportUnreadable:
            continue
        if rate.percent is not None:
            return NewestSuccess(job=artifact.job, rate=rate)
    return None


def this_month(tenant: Tenant, now: datetime) -> Month:
    """The month's money, as the usage page tells it."""
    return month_read(tenant, month_of(now), now)


def device_share(tenant: Tenant) -> float | None:
    """The tenant's part, in percent, of the device time measured in the last half hour; None where nothing ran."""
    histories = [utilization_history(tenant, service=service) for service in (TRAINING, INFERENCE)]
    busy = _sum(histories, "busy")
    return 100 * _sum(histories, "own") / busy if busy else None


def _sum(histories: Sequence[UtilizationHistory], column: str) -> float:
    return sum(sum(getattr(history, column)) for history in histories)
