"""The rows of the job list: one page of what matches, with what a line says of each job."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from frontend.facts import subject_of
from frontend.state_line import time_left
from frontend.views.jobs.asked import Asked
from frontend.views.jobs.reasons import reason_of
from frontend.views.jobs.results import Result, results_of
from jobs.models import Job
from jobs.selectors.jobs import job_list, jobs_of
from jobs.selectors.line import queue_places
from jobs.selectors.pace import recent_paces
from tenants.billing.usage.selectors import Cost, job_costs
from tenants.models import Tenant

COUNTED_MAX = 1000
"""So many matching jobs are counted, and sorted by what no index holds; more are "999+"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``since`` and ``until``: of its duration; a job that never started waits, or waited, since it was submitted."""

    job: Job
    cost: Cost
    result: Result | None
    subject: tuple[str, str]
    reason: str
    since: datetime
    until: datetime

    @property
    def waits(self) -> bool:
        return self.job.started_at is None

    @property
    def age_s(self) -> int:
        """Seconds of its duration so far."""
        return int((self.until - self.since).total_seconds())

    @property
    def share(self) -> int:
        """Percent done."""
        return min(100, 100 * self.job.step // self.job.total_steps) if self.job.total_steps else 0

    @property
    def tags(self) -> list[str]:
        return [tag.name for tag in self.job.tags.all()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """``count``: of all that match, exact below `COUNTED_MAX`; ``unsorted``: too many to sort by what was asked."""

    rows: tuple[Row, ...]
    first: int  # place of the first row, from 1
    count: int
    has_more: bool
    unsorted: bool
    now: datetime

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1


def listing_of(tenant: Tenant, asked: Asked) -> Listing:
    """A constant number of queries. What no index counts is counted, and sorted, up to a bound."""
    now, offset = timezone.now(), (asked.page - 1) * asked.size
    matching = job_list(tenant, asked.wanted).values_list("pk", flat=True)
    keys = list(matching[: max(COUNTED_MAX, offset + asked.size + 1)])
    unsorted = bool(asked.measured) and len(keys) >= COUNTED_MAX
    if asked.measured and not unsorted:
        keys = _sorted(tenant, keys, asked, now)
    shown = keys[offset : offset + asked.size]
    return Listing(
        rows=rows_of(tenant, shown, now),
        first=offset + 1,
        count=len(keys),
        has_more=len(keys) > offset + asked.size,
        unsorted=unsorted,
        now=now,
    )


def rows_of(tenant: Tenant, keys: list[UUID], now: datetime) -> tuple[Row, ...]:
    """In the order of the keys."""
    found = {job.pk: job for job in jobs_of(tenant, keys)}
    jobs = [found[key] for key in keys if key in found]
    costs, results = job_costs(tenant, keys), results_of(tenant, jobs)
    places = queue_places(tenant.pk, jobs)
    paces = recent_paces(tenant, jobs, now=now)
    return tuple(
        Row(
            job=job,
            cost=costs[job.pk],
            result=results.get(job.pk),
            subject=subject_of(job),
            reason=reason_of(
                job,
                places.get(job.pk),
                time_left(step=job.step, total=job.total_steps, pace=paces.get(job.pk)),
            ),
            since=job.started_at or job.created_at,
            until=job.finished_at or now,
        )
        for job in jobs
    )


def _sorted(tenant: Tenant, keys: list[UUID], asked: Asked, now: datetime) -> list[UUID]:
    """By a figure of each, newest first among equals."""
    if asked.measured == "cost":
        figures = {key: float(cost.amount) for key, cost in job_costs(tenant, keys).items()}
    else:
        spans = job_list(tenant, asked.wanted).filter(pk__in=keys)
        moments = spans.values_list("pk", "started_at", "created_at", "finished_at")
        figures = {
            key: ((finished or now) - (started or created)).total_seconds()
            for key, started, created, finished in moments
        }
    return sorted(keys, key=lambda key: figures.get(key, 0.0), reverse=asked.sort.startswith("-"))
