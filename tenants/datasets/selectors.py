"""Reading datasets of one tenant."""

from uuid import UUID

from django.db.models import Prefetch, QuerySet, Sum

from tenants.access import access_row, not_found
from tenants.datasets.models import Dataset, DatasetVersion, Upload, UploadState, VersionState
from tenants.models import Tenant
from tenants.quotas.storage import Stored
from tenants.scope import tenant_scope


def dataset_list(tenant: Tenant) -> QuerySet[Dataset]:
    """Every dataset with its versions, newest version first."""
    with tenant_scope(tenant):
        newest_first = DatasetVersion.objects.order_by("-number")
        return Dataset.objects.prefetch_related(Prefetch("versions", queryset=newest_first))


def dataset_get(tenant: Tenant, dataset_id: UUID | str) -> Dataset:
    """One dataset. Raises the 404 of a missing one for a foreign one."""
    return access_row(dataset_list(tenant), "dataset", pk=_uuid(dataset_id, "dataset"))


def version_list(tenant: Tenant) -> QuerySet[DatasetVersion]:
    with tenant_scope(tenant):
        return DatasetVersion.objects.select_related("dataset").order_by("-created_at")


def version_get(tenant: Tenant, version_id: UUID | str) -> DatasetVersion:
    """One dataset version. Raises the 404 of a missing one for a foreign one and for what is no UUID."""
    return access_row(version_list(tenant), "dataset version", pk=_uuid(version_id, "dataset version"))


def versions_recorded_from(tenant: Tenant, job_id: UUID) -> QuerySet[DatasetVersion]:
    """Dataset versions that hold the episodes of one job, newest first."""
    return version_list(tenant).filter(recorded_from=job_id)


def version_by_number(tenant: Tenant, dataset_id: UUID | str, number: int) -> DatasetVersion:
    """Version ``number`` of one dataset."""
    return access_row(version_list(tenant), "dataset version", dataset_id=dataset_id, number=number)


def upload_list(tenant: Tenant) -> QuerySet[Upload]:
    """Chunked uploads, newest first; ended ones stay as history."""
    with tenant_scope(tenant):
        return Upload.objects.order_by("-created_at", "-pk")


def uploads_under_way(tenant: Tenant) -> QuerySet[Upload]:
    """Chunked uploads that wait for their next byte, newest first."""
    return upload_list(tenant).filter(state=UploadState.RECEIVING).select_related("created_by")


def upload_get(tenant: Tenant, upload_id: UUID) -> Upload:
    """One upload. Raises the 404 of a missing one for a foreign one."""
    return access_row(upload_list(tenant), "upload", pk=upload_id)


def bytes_of(tenant: Tenant) -> Stored:
    """What the tenant's dataset versions take by their rows; an invalid one keeps no bytes."""
    with tenant_scope(tenant):
        kept = DatasetVersion.objects.exclude(state=VersionState.INVALID)
        return Stored(used_bytes=kept.aggregate(total=Sum("size_bytes"))["total"] or 0)


def _uuid(value: UUID | str, noun: str) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except ValueError:
        raise not_found(noun) from None
