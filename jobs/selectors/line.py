"""A tenant's line: its queued jobs in the order in which they start, and what its started jobs use."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, Q, Sum

from jobs.demand import TRAINING_KINDS
from jobs.models import Job
from jobs.states import LIVE, JobState
from tenants.models import Tenant
from tenants.quotas.models import Resource
from tenants.quotas.usage import Used
from tenants.scope import platform_scope, tenant_scope

ORDER = ("-priority", "created_at", "pk")
STARTED = LIVE - {JobState.QUEUED}
RUNNING_RESOURCES = (Resource.RUNNING_JOBS, Resource.SLOTS, Resource.ENV_SEATS)
"""What a started job takes and gives back when it ends."""

Use = dict[Resource, int]


class InLine(NamedTuple):
    """A queued job, as far as its turn depends on it."""

    pk: UUID
    project_id: UUID
    kind: str
    env_seats: int
    priority: int
    reason: str
    created_at: datetime
    message: str = ""

    @property
    def demand(self) -> Use:
        return demand(self.kind, self.env_seats)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Why a job waits and how many are before it: ``position`` counts from 1 and never exceeds ``of``."""

    reason: str
    position: int
    of: int


def demand(kind: str, env_seats: int) -> Use:
    """What one job takes of each resource while it is started."""
    return {
        Resource.RUNNING_JOBS: 1,
        Resource.SLOTS: int(kind in TRAINING_KINDS),
        Resource.ENV_SEATS: env_seats,
    }


def line_of(tenant: Tenant) -> Iterator[InLine]:
    """The tenant's queued jobs, first in line first. Read lazily: most readers need its head only."""
    with tenant_scope(tenant):
        rows = Job.objects.filter(state=JobState.QUEUED).order_by(*ORDER)
    for row in rows.values_list(*InLine._fields).iterator(chunk_size=500):
        yield InLine(*row)


def started_use(tenant: Tenant) -> dict[UUID, Use]:
    """What the started jobs of each project use now, counted from the jobs themselves. One query."""
    with tenant_scope(tenant):
        started = Job.objects.filter(state__in=STARTED).order_by().values("project_id")
        rows = started.annotate(
            running=Count("pk"), training=Count("pk", filter=Q(kind__in=TRAINING_KINDS)), seats=Sum("env_seats")
        )
        return {
            row["project_id"]: {
                Resource.RUNNING_JOBS: row["running"],
                Resource.SLOTS: row["training"],
                Resource.ENV_SEATS: row["seats"] or 0,
            }
            for row in rows
        }


def queued_counts(tenant: Tenant) -> dict[UUID, int]:
    """How many jobs of each project are queued."""
    with tenant_scope(tenant):
        rows = Job.objects.filter(state=JobState.QUEUED).order_by().values("project_id").annotate(count=Count("pk"))
        return {row["project_id"]: row["count"] for row in rows}


def queued_total(tenant: Tenant) -> int:
    """How many jobs of the tenant are queued."""
    return sum(queued_counts(tenant).values())


def quota_use(tenant: Tenant) -> Used:
    """Jobs in line and what started ones use, by project and of the whole tenant; two queries."""
    used: Used = {None: dict.fromkeys((*RUNNING_RESOURCES, Resource.QUEUED_JOBS), 0)}
    queued = {project_id: {Resource.QUEUED_JOBS: count} for project_id, count in queued_counts(tenant).items()}
    for counts in (started_use(tenant), queued):
        for project_id, figures in counts.items():
            used.setdefault(project_id, {}).update(figures)
            for resource, amount in figures.items():
                used[None][resource] += amount
    return used


def queue_places(tenant_id: UUID, jobs: Collection[Job]) -> dict[UUID, QueuePlace]:
    """The places of those of a tenant's ``jobs`` that are queued, in one query; none if none is."""
    reasons = {job.pk: job.reason for job in jobs if job.state == JobState.QUEUED}
    if not reasons:
        return {}
    with platform_scope():
        line = Job.objects.filter(tenant_id=tenant_id, state=JobState.QUEUED).order_by(*ORDER)
        keys = list(line.values_list("pk", flat=True))
    return {
        key: QueuePlace(reason=reasons[key], position=place, of=len(keys))
        for place, key in enumerate(keys, start=1)
        if key in reasons
    }
