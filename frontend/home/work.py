"""The tenant's jobs as the home page needs them: under way, in line, and what ended last."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min

from frontend.home.running import Running, about, running_rows, soonest_end
from frontend.successes import Success, latest_successes
from jobs.models import Job
from jobs.selectors.filters import STATE_LIVE, JobFilter
from jobs.selectors.jobs import job_list
from jobs.selectors.line import ORDER, STARTED, QueuePlace, queue_places
from jobs.states import JobState
from tenants.billing.usage.selectors import Cost, job_costs
from tenants.models import Tenant
from tenants.quotas.limits import limit_of
from tenants.quotas.models import Resource

RUNNING_SHOWN, WAITING_SHOWN, ENDED_SHOWN = 8, 5, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    job: Job
    about: str
    place: QueuePlace | None  # None: it started while this was read


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    job: Job
    about: str
    cost: Cost
    success: Success | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """``counts``: jobs that have not ended, by state. ``limit``: of started jobs; None: none."""

    counts: Mapping[str, int]
    limit: int | None
    oldest_queued: datetime | None
    running: list[Running]
    waiting: list[Waiting]
    ended: list[Ended]
    costs: Mapping[Any, Cost]  # of what runs and what ended last, by job

    @property
    def started(self) -> int:
        return sum(count for state, count in self.counts.items() if state in STARTED)

    @property
    def by_state(self) -> str:
        """``3 running, 1 starting``."""
        order = (JobState.RUNNING, JobState.STARTING, JobState.CANCELLING)
        return ", ".join(f"{self.counts[state]} {state}" for state in order if self.counts.get(state))

    @property
    def queued(self) -> int:
        return self.counts.get(JobState.QUEUED, 0)

    @property
    def next_start(self) -> timedelta | None:
        """When the line moves at the latest: it is full, and this is when the first running job will be done."""
        full = self.limit is not None and self.started >= self.limit
        return soonest_end(self.running) if full and self.queued and len(self.running) == self.started else None


def work_of(tenant: Tenant, *, now: datetime) -> Work:
    """A constant number of queries; at most a few jobs of each part are read."""
    live = job_list(tenant, JobFilter(state=STATE_LIVE, archived=None)).prefetch_related(None).order_by()
    rows = live.select_related(None).values_list("state").annotate(count=Count("pk"), oldest=Min("created_at"))
    counts, oldest = {}, {}
    for state, count, first in rows.order_by("state"):
        counts[state], oldest[state] = count, first
    started = list(live.filter(state__in=STARTED).order_by("-started_at", "-number")[:RUNNING_SHOWN])
    queued = list(live.filter(state=JobState.QUEUED).order_by(*ORDER)[:WAITING_SHOWN])
    over = job_list(tenant).prefetch_related(None).filter(finished_at__isnull=False)
    ended = list(over.order_by("-finished_at", "-number")[:ENDED_SHOWN])
    places = queue_places(tenant.pk, queued)
    costs, successes = job_costs(tenant, [job.pk for job in (*started, *ended)]), latest_successes(tenant, ended)
    return Work(
        counts=counts,
        limit=limit_of(tenant, Resource.RUNNING_JOBS),
        oldest_queued=oldest.get(JobState.QUEUED),
        running=running_rows(tenant, started, now=now),
        waiting=[Waiting(job=job, about=about(job), place=places.get(job.pk)) for job in queued],
        ended=[Ended(job=job, about=about(job), cost=costs[job.pk], success=successes.get(job.pk)) for job in ended],
        costs=costs,
    )
