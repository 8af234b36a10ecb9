"""What jobs are called, by id: for lists of things that only know the id."""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from jobs.models import Job
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
