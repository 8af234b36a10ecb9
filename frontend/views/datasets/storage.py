"""What a tenant stores against what it may, as the pages of datasets show it."""

from typing import Any

from django.conf import settings

from tenants.models import Tenant
from tenants.quotas.limits import limit_of
from tenants.quotas.models import Resource
from tenants.quotas.storage import storage_of


def storage_context(tenant: Tenant) -> dict[str, Any]:
    """Bytes held, reserved by uploads, allowed (None: unlimited) and free, and how much one upload may have."""
    stored, limit = storage_of(tenant), limit_of(tenant, Resource.STORAGE_BYTES)
    held = stored.used_bytes + stored.reserved_bytes
    return {
        "used": stored.used_bytes,
        "reserved": stored.reserved_bytes,
        "held": held,
        "limit": limit,
        "free": None if limit is None else max(limit - held, 0),
        "upload_max": settings.JOYNEXUS_UPLOAD_MAX_BYTES,
    }
