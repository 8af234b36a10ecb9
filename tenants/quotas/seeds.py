"""The limits every installation starts with. An operator changes them; a tenant's own limit goes before them."""

from typing import Any

from tenants.quotas.models import DefaultQuota, Resource

# Without a row a resource is unlimited: compute and money have none until an operator or the tenant sets one.
LIMITS: dict[Resource, int] = {
    Resource.RUNNING_JOBS: 16,
    Resource.QUEUED_JOBS: 1000,
    Resource.SLOTS: 16,
    Resource.ENV_SEATS: 64,
    Resource.STORAGE_BYTES: 100 * 10**9,
    Resource.UPLOADS: 8,
    Resource.REQUESTS_PER_MINUTE: 1200,
}


def add_missing_limits(model: Any = DefaultQuota) -> None:
    """Insert the default limits that are not there (idempotent). ``model`` is the historical one in a migration."""
    rows = [model(resource=str(resource), limit=limit) for resource, limit in LIMITS.items()]
    model.objects.bulk_create(rows, ignore_conflicts=True)
