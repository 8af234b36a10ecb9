"""Whose turn it is: which queued jobs of a tenant may start within its limits, and what the others wait for.

The order is priority, then age. A waiting job keeps what it needs: nobody behind it takes a place that it waits for,
so nobody waits for ever. Jobs that are held up by their own project's limit hold up that project only, and one that
has its turn but may not start yet for another reason (a month's money is used up, a service is drained) nobody.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from jobs.cap_rules import CapReason
from jobs.selectors.line import RUNNING_RESOURCES, InLine, Use, line_of, started_use
from jobs.services.drain import DRAINING
from tenants.models import Tenant, TenantState
from tenants.quotas.limits import Limits, limits_read
from tenants.quotas.models import Resource

PAUSED = "tenant_paused"
NOT_FOR_A_PLACE = frozenset({*map(str, CapReason), DRAINING})
"""What a job may wait for that no place helps against; it keeps this reason until it is tried again."""
_NOUNS = {
    Resource.RUNNING_JOBS: "running jobs",
    Resource.SLOTS: "running jobs that train (slots)",
    Resource.ENV_SEATS: "environment seats of running jobs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a queued job does not start: a machine-readable reason and a sentence."""

    reason: str
    message: str
    for_all_behind: bool = False  # whoever is behind it waits too


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A queued job, and what it waits for; None: it may start now."""

    job: InLine
    wait: Wait | None


class _Scope:
    """What is left of one scope's limits: the tenant's, or one project's. None: unlimited."""

    def __init__(self, name: str, limits: dict[Resource, int | None], used: Use) -> None:
        self.name = name
        self.limits = limits
        self.free = {
            resource: None if limit is None else limit - used.get(resource, 0) for resource, limit in limits.items()
        }

    def lacking(self, wanted: Use) -> Resource | None:
        """The first resource of which too little is left."""
        for resource in RUNNING_RESOURCES:
            free = self.free[resource]
            if wanted[resource] and free is not None and wanted[resource] > free:
                return resource
        return None

    def can_ever(self, wanted: Use) -> bool:
        """Would it fit if nothing else ran?"""
        return all(limit is None or wanted[resource] <= limit for resource, limit in self.limits.items())

    def take(self, wanted: Use) -> None:
        for resource, free in self.free.items():
            if free is not None:
                self.free[resource] = free - wanted[resource]

    def wait_for(self, resource: Resource, wanted: Use) -> Wait:
        limit, asked = self.limits[resource], wanted[resource]
        told = f"{self.name}'s limit of {_NOUNS[resource]} is {limit}"
        if limit is not None and asked > limit:
            told += f" and this job asks for {asked}; it starts when the limit is raised."
        else:
            told += "; it starts when enough of them have ended."
        everybody = resource == Resource.RUNNING_JOBS and self.name == _TENANT
        return Wait(reason=f"quota_{resource}", message=told, for_all_behind=everybody)


_TENANT = "Your tenant"
_PROJECT = "The project"


def turns(*, limits: Limits, started: dict[UUID, Use], line: Iterable[InLine]) -> Iterator[Turn]:
    """Go through the line once. Those who may start take their places at once, so all of them may start together.

    A job that waits for its tenant's limit keeps its demand of everything; one that waits for its project's keeps
    it within the project. One that could not start even alone keeps nothing: it would hold up the rest for ever.
    Nor does one that was tried and waits for something else, which may take until the next month.
    """
    tenant = _Scope(_TENANT, {one: limits.of_tenant(one) for one in RUNNING_RESOURCES}, _sum(started.values()))
    projects: dict[UUID, _Scope] = {}
    for job in line:
        wanted = job.demand
        project = projects.get(job.project_id)
        if project is None:
            own = {one: limits.of_project(job.project_id, one) for one in RUNNING_RESOURCES}
            project = projects[job.project_id] = _Scope(_PROJECT, own, started.get(job.project_id, {}))
        keeps = job.reason not in NOT_FOR_A_PLACE
        yield Turn(job=job, wait=_place(tenant, project, wanted, keeps=keeps))


def _place(tenant: _Scope, project: _Scope, wanted: Use, *, keeps: bool) -> Wait | None:
    """Take the job's places, or keep them for it; what it waits for."""
    of_project, of_tenant = project.lacking(wanted), tenant.lacking(wanted)
    if keeps and tenant.can_ever(wanted) and project.can_ever(wanted):
        project.take(wanted)
        if of_project is None:
            tenant.take(wanted)
    if of_project is not None:
        return project.wait_for(of_project, wanted)
    return None if of_tenant is None else tenant.wait_for(of_tenant, wanted)


def line_turns(tenant: Tenant, *, line: Iterable[InLine] | None = None) -> Iterator[Turn]:
    """The turns of a tenant's queued jobs, read from the rows as they are now; ``tenant`` as just read or locked.

    ``line``: another than the present one, to see what would be.
    """
    line = line_of(tenant) if line is None else line
    if tenant.state == TenantState.PAUSED:
        why = tenant.paused_reason or "ask the operators of the platform"
        wait = Wait(reason=PAUSED, message=f"Your tenant is paused: {why}.", for_all_behind=True)
        for job in line:
            yield Turn(job=job, wait=wait)
        return
    yield from turns(limits=limits_read(tenant), started=started_use(tenant), line=line)


def wait_of(tenant: Tenant, job_id: UUID) -> Wait | None:
    """What this queued job waits for; None: it may start now. Call it with the tenant's row locked."""
    for turn in line_turns(tenant):
        if turn.job.pk == job_id or (turn.wait is not None and turn.wait.for_all_behind):
            return turn.wait
    return None  # it is queued no more: the claim's compare-and-swap says so


def _sum(uses: Iterable[Use]) -> Use:
    total: Use = dict.fromkeys(RUNNING_RESOURCES, 0)
    for use in uses:
        for resource, amount in use.items():
            total[resource] += amount
    return total
