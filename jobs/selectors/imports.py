"""How far a job's recorded episodes are on their way into its tenant's datasets."""

from uuid import UUID

from jobs.models import DatasetImport
from tenants.models import Tenant
from tenants.scope import tenant_scope


def import_of_job(tenant: Tenant, job_id: UUID) -> DatasetImport | None:
    """The newest import of a job; None where it has published no dataset. Says nothing about a missing job."""
    with tenant_scope(tenant):
        return DatasetImport.objects.filter(artifact__job_id=job_id).order_by("-created_at", "-pk").first()
