"""Hand-overs of a job to the runtime, as its tenant sees them."""

from uuid import UUID

from jobs.models import JobAttempt
from jobs.selectors.jobs import job_get
from tenants.models import Tenant
from tenants.scope import tenant_scope

ATTEMPTS_SHOWN = 50


def attempt_list(tenant: Tenant, job_id: UUID) -> list[JobAttempt]:
    """The newest first, ``ATTEMPTS_SHOWN`` at most. Raises the same 404 for a missing and for a foreign job."""
    with tenant_scope(tenant):
        attempts = JobAttempt.objects.filter(job_id=job_get(tenant, job_id).pk).order_by("-number")
        return list(attempts[:ATTEMPTS_SHOWN])
