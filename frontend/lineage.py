"""Where a job's policy comes from, and what was made of a job's own."""

from django.db.models import QuerySet

from jobs.models import Artifact, Job
from jobs.selectors.jobs import artifact_get, job_list
from tenants.datasets.models import DatasetVersion
from tenants.models import Tenant
from tenants.scope import tenant_scope

HEIRS_SHOWN = 10


def policy_of(tenant: Tenant, job: Job) -> Artifact | None:
    """The adapter a job starts from, with the job that made it; None for a job that starts from a dataset."""
    return artifact_get(tenant, job.policy_id) if job.policy_id else None


def heirs_of(tenant: Tenant, job: Job) -> list[Job]:
    """The newest jobs that start from an adapter of this one."""
    return list(job_list(tenant).filter(policy__job_id=job.pk)[:HEIRS_SHOWN])


def recorded_datasets(tenant: Tenant, job: Job) -> QuerySet[DatasetVersion]:
    """Dataset versions that hold this job's own episodes, newest first."""
    with tenant_scope(tenant):
        versions = DatasetVersion.objects.filter(recorded_from=job.pk)
        return versions.select_related("dataset").order_by("-created_at", "-pk")
