"""A tenant's jobs for lists of other things: what they are called, by id, and those in some states."""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from jobs.models import Job
from jobs.states import JobState
from tenants.models import Tenant
from tenants.scope import tenant_scope


class JobName(NamedTuple):
    """A job's number among its tenant's, and its name."""

    number: int
    name: str


def job_names(tenant: Tenant, job_ids: Collection[UUID]) -> dict[UUID, JobName]:
    """The tenant's own among these, archived ones too; one query."""
    with tenant_scope(tenant):
        rows = Job.objects.filter(pk__in=job_ids).values_list("pk", "number", "name")
        return {key: JobName(number, name) for key, number, name in rows}


def jobs_in(tenant: Tenant, states: Collection[JobState], *, most: int) -> list[Job]:
    """The tenant's newest jobs in some states."""
    with tenant_scope(tenant):
        return list(Job.objects.filter(state__in=states).order_by("-created_at", "-pk")[:most])
