"""A job that ended is run once more: a new job of the same specification, which says what it repeats."""

from uuid import UUID

from django.db import transaction

from jobs.models import Job
from jobs.selectors.jobs import job_get
from jobs.services.submit import job_submit
from jobs.states import LIVE
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.scope import tenant_scope


def retry_spec(job: Job) -> dict[str, object]:
    """The specification of a job as it would be submitted again; its name and tags are those it has now."""
    with tenant_scope(job.tenant):
        tags = sorted(job.tags.values_list("name", flat=True))
    return {**job.spec, "name": job.name, "tags": tags, "cloned_from": str(job.pk)}


@transaction.atomic
def job_retry(*, tenant: Tenant, job_id: UUID, by: Actor) -> Job:
    """Submit an ended job's specification again. Limits, budgets and holds apply as to any new job.

    Raises ApplicationError 404 for a missing and for a foreign job, 409 for one that has not ended, and whatever
    `job_submit` refuses: the dataset or policy it needs may be gone, or the money.
    """
    job = job_get(tenant, job_id)
    if job.state in LIVE:
        detail = f"The job is {job.state}; only a job that has ended is run again."
        raise ApplicationError(code="job_not_ended", status=409, detail=detail)
    return job_submit(tenant=tenant, actor=by, spec=retry_spec(job))
