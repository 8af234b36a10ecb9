"""Datasets and versions go, and their bytes with them: by their tenant's wish, or when retention is over."""

import logging
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import F, Model, Q, QuerySet
from django.db.models.deletion import ProtectedError
from django.utils import timezone

from tenants.audit.services import audit
from tenants.datasets import preview_cache, storage
from tenants.datasets.models import Dataset, DatasetVersion, VersionState
from tenants.datasets.selectors import dataset_get, version_get
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.quotas.storage import storage_release
from tenants.scope import platform_scope, tenant_scope

logger = logging.getLogger(__name__)

_JOBS_NAMED = 5


@transaction.atomic
def dataset_delete(
    *, tenant: Tenant, actor: Actor, dataset_id: uuid.UUID, precondition: Callable[[int], None]
) -> None:
    """Delete a dataset with all versions. Refused while any job, finished ones too, was trained on one.

    ``precondition`` gets the locked row's version and refuses what the caller has not seen. Raises ApplicationError.
    """
    _lock(tenant)
    dataset = dataset_get(tenant, dataset_id)
    precondition(dataset.version)
    with tenant_scope(tenant):
        versions = list(_locked(DatasetVersion.objects.filter(dataset=dataset)))
        audit(by=actor, verb="dataset.deleted", target=dataset, tenant=tenant, before={"versions": len(versions)})
        _remove(tenant, actor, versions, "")
        Dataset.objects.filter(pk=dataset.pk).delete()


@transaction.atomic
def version_delete(*, tenant: Tenant, actor: Actor, version_id: uuid.UUID) -> None:
    """Delete one version. Refused while any job uses it."""
    _lock(tenant)
    version = version_get(tenant, version_id)
    with tenant_scope(tenant):
        _remove(tenant, actor, _locked(DatasetVersion.objects.filter(pk=version.pk)), "")
        Dataset.objects.filter(pk=version.dataset_id).update(version=F("version") + 1)


def retention_sweep() -> int:
    """Delete sealed versions older than their dataset's ``keep_days`` that no job uses. Returns how many."""
    with platform_scope():
        late = list(_late(timezone.now()).select_related("tenant").order_by("sealed_at"))
    return sum(_retire(version) for version in late)


@transaction.atomic
def _retire(version: DatasetVersion) -> bool:
    """False if it is in use, is gone, or may stay longer by now."""
    _lock(version.tenant)
    with tenant_scope(version.tenant):
        rows = list(_locked(_late(timezone.now()).filter(pk=version.pk)))
        if not rows:
            return False
        reason = f"kept for {rows[0].dataset.keep_days} days after it was sealed, and no job uses it"
        try:
            _remove(version.tenant, None, rows, reason)
        except ApplicationError:
            return False
        Dataset.objects.filter(pk=version.dataset_id).update(version=F("version") + 1)
    logger.info("dataset version %s is deleted: %s", version.pk, reason)
    return True


def _late(now: datetime) -> QuerySet[DatasetVersion]:
    """By each dataset's own number of days."""
    kept = DatasetVersion.objects.filter(state=VersionState.READY).exclude(dataset__keep_days=None)
    late = Q(pk__in=())
    for days in Dataset.objects.exclude(keep_days=None).values_list("keep_days", flat=True).order_by().distinct():
        late |= Q(dataset__keep_days=days, sealed_at__lte=now - timedelta(days=days or 0))
    return kept.filter(late)


def _lock(tenant: Tenant) -> None:
    """No version is added, used by a new job or deleted meanwhile."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


def _locked(rows: QuerySet[DatasetVersion]) -> QuerySet[DatasetVersion]:
    return rows.select_related("dataset").order_by("pk").select_for_update(of=("self",), no_key=True)


def _remove(tenant: Tenant, actor: Actor | None, versions: Sequence[DatasetVersion] | QuerySet, reason: str) -> None:
    """Rows, bytes and the place they took. Raises ApplicationError 409 while jobs use one; then all of them stay."""
    rows = list(versions)
    with transaction.atomic():
        try:
            DatasetVersion.objects.filter(pk__in=[row.pk for row in rows]).delete()
        except ProtectedError as error:
            raise _in_use(error.protected_objects) from None
    for row in rows:
        before = {"number": row.number, "state": row.state, "size_bytes": row.size_bytes}
        audit(by=actor, verb="dataset_version.deleted", target=row, tenant=tenant, before=before, reason=reason)
    storage_release(tenant, used=sum(row.size_bytes for row in rows if row.state != VersionState.INVALID))
    for row in rows:
        transaction.on_commit(partial(storage.discard, row.pk, row.storage_key))
        transaction.on_commit(partial(preview_cache.forget, row.pk))


def _in_use(users: set[Model]) -> ApplicationError:
    ids = sorted(str(user.pk) for user in users)
    more = f" and {len(ids) - _JOBS_NAMED} more" if len(ids) > _JOBS_NAMED else ""
    named = ", ".join(ids[:_JOBS_NAMED])
    return ApplicationError(
        code="dataset_in_use",
        status=409,
        detail=f"Jobs were trained on it, and their history keeps it: {named}{more}.",
        extra={"jobs": ids[:_JOBS_NAMED], "jobs_total": len(ids)},
    )
