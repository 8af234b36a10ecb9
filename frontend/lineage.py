"""What was made of a job's own policy and episodes."""

from django.db.models import QuerySet

from jobs.models import Job
from jobs.selectors.jobs import job_list
from tenants.datasets.models import DatasetVersion
from tenants.models import Tenant
from tenants.scope import tenant_scope

HEIRS_SHOWN = 10


def heirs_of(tenant: Tenant, job: Job) -> list[Job]:
    """The newest jobs that start from an adapter of this one."""
    return list(job_list(tenant).filter(policy__job_id=job.pk)[:HEIRS_SHOWN])


def recorded_datasets(tenant: Tenant, job: Job) -> QuerySet[DatasetVersion]:
    """Dataset versions that hold this job's own episodes, newest first."""
    with tenant_scope(tenant):
        versions = DatasetVersion.objects.filter(recorded_from=job.pk)
        return versions.select_related("dataset").order_by("-created_at", "-pk")
