"""Caps: a started job that has used up what it, its key, its project or its tenant may is stopped, and keeps its work.

Decided after each applied batch of the journal, for the tenants that were charged in it; a sweep finds what a process
missed that died in between, and limits that were lowered meanwhile. Queued jobs wait.
"""

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from jobs.cap_rules import Reached, cap_reached
from jobs.models import Job
from jobs.selectors.caps import facts_of, live_job, live_jobs, live_tenants, usage_of_events
from jobs.services.cancel import job_stop
from tenants.billing.usage.selectors import Spending
from tenants.scope import platform_scope


def caps_enforce(
    charged: Collection[tuple[UUID, UUID]], *, source: str = "", newest: Collection[str] = ()
) -> list[UUID]:
    """Stop every started job of the charged (tenant, job) pairs' tenants that has come to a limit; returns their ids.

    ``newest``: each job's last usage events in the batch, under ``source``: as much is under way. A fixed number of
    statements, however many jobs; each stop is a transaction of its own.
    """
    if not charged:
        return []
    return _enforce({tenant_id for tenant_id, _ in charged}, lambda: usage_of_events(source, newest))


def cap_of_queued(job: Job) -> Reached | None:
    """What a queued job would be stopped for as soon as it started; None: it may start.

    It waits until a limit is raised or a month begins.
    """
    waiting = live_job(job)
    return cap_reached(waiting, facts_of([waiting], {}))


def caps_sweep() -> list[UUID]:
    """The same for every tenant with a started job, by what is on the books."""
    tenants = live_tenants()
    return _enforce(tenants, dict) if tenants else []


def _enforce(tenants: Collection[UUID], ahead: Callable[[], Mapping[UUID, Spending]]) -> list[UUID]:
    live = live_jobs(tenants)
    if not live:
        return []
    facts = facts_of(live, ahead())
    found = {job.job_id: cap_reached(job, facts) for job in live}
    return _stop({job_id: reached for job_id, reached in found.items() if reached is not None})


def _stop(reached: Mapping[UUID, Reached]) -> list[UUID]:
    if not reached:
        return []
    with platform_scope():
        jobs = list(Job.objects.filter(pk__in=reached).select_related("tenant").order_by("pk"))
    return [
        job.pk for job in jobs if job_stop(job=job, reason=reached[job.pk].reason, message=reached[job.pk].message)
    ]
