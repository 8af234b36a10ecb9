"""Writes of the datasets app: taking recordings in, seeing that they are validated, deleting them."""

import logging
import uuid
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.db.models.deletion import ProtectedError
from django.utils import timezone

from gpu_runtime.protocol.schema import Declared
from tenants.datasets import storage
from tenants.datasets.claims import ATTEMPTS_MAX, claimable, stale, version_refuse
from tenants.datasets.models import Dataset, DatasetVersion, VersionState
from tenants.datasets.selectors import dataset_get, version_get
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.scope import platform_scope, tenant_scope

logger = logging.getLogger(__name__)

NUDGE_EVERY = timedelta(seconds=30)  # a waiting version is asked for again: its message may be lost or just late


def dataset_import(
    *,
    tenant: Tenant,
    actor: Actor | None,
    name: str,
    source: Path,
    declared: Declared | None = None,
    recorded_from: uuid.UUID | None = None,
    version_id: uuid.UUID | None = None,
) -> DatasetVersion:
    """Take in a recording as the next version of the dataset called ``name`` and ask for its validation.

    ``source`` is a finished upload, or a folder or zip of this server (operators only). ``recorded_from`` is the job
    that made it, if one did; ``version_id`` its future id, where the caller may have to repeat himself.
    Raises ApplicationError.
    """
    version_id = version_id or uuid.uuid4()
    try:
        size_bytes = storage.take_in(source, version_id)
        with tenant_scope(tenant), transaction.atomic():
            dataset = _dataset_named(tenant, actor, name)
            version = DatasetVersion.objects.create(
                id=version_id,
                tenant=tenant,
                dataset=dataset,
                number=(dataset.versions.aggregate(newest=Max("number"))["newest"] or 0) + 1,
                storage_key=storage.storage_key(tenant.pk, version_id),
                declared=declared.model_dump(mode="json", exclude_unset=True) if declared else {},
                size_bytes=size_bytes,
                recorded_from=recorded_from,
                claimed_until=timezone.now() + NUDGE_EVERY,
            )
    except BaseException:
        storage.discard(version_id)
        raise
    transaction.on_commit(lambda: nudge_validation(version_id))
    return version


def nudge_next() -> None:
    """Ask for the version that has waited longest, now that a place is free."""
    with platform_scope():
        waiting = DatasetVersion.objects.filter(state=VersionState.RECEIVED).order_by("created_at")
        next_id = waiting.values_list("pk", flat=True).first()
    if next_id is not None:
        nudge_validation(next_id)


def dataset_delete(*, tenant: Tenant, dataset_id: uuid.UUID) -> None:
    """Delete a dataset with all versions. Refused while any job, finished ones too, was trained on one."""
    dataset = dataset_get(tenant, dataset_id)
    with tenant_scope(tenant), transaction.atomic():
        versions = list(DatasetVersion.objects.filter(dataset=dataset))
        _delete(DatasetVersion.objects.filter(dataset=dataset))
        _delete(Dataset.objects.filter(pk=dataset.pk))
        for row in versions:
            transaction.on_commit(partial(storage.discard, row.pk, row.storage_key))


def version_delete(*, tenant: Tenant, version_id: uuid.UUID) -> None:
    """Delete one version. Refused while any job uses it."""
    version = version_get(tenant, version_id)
    with tenant_scope(tenant), transaction.atomic():
        _delete(DatasetVersion.objects.filter(pk=version.pk))
        transaction.on_commit(lambda: storage.discard(version.pk, version.storage_key))


def sweep_unvalidated() -> int:
    """Nudge every version whose message or worker was lost, refuse those tried too often. Returns how many nudged.

    For the periodic reconcile task: the rows are the truth, so a broker that loses messages costs only time.
    """
    now = timezone.now()
    with platform_scope():
        for version in DatasetVersion.objects.filter(stale(now), attempts__gte=ATTEMPTS_MAX):
            _exhaust(version)
        overdue = Q(claimed_until=None) | Q(claimed_until__lt=now)
        waiting = list(claimable(now).filter(overdue).values_list("pk", flat=True)[:100])
        received = DatasetVersion.objects.filter(pk__in=waiting, state=VersionState.RECEIVED)
        received.update(claimed_until=now + NUDGE_EVERY)
    for version_id in waiting:
        nudge_validation(version_id)
    return len(waiting)


def sweep_storage() -> int:
    """Remove bytes of uploads that never became a version. Returns how many."""
    with platform_scope():
        return storage.sweep_incoming(list(DatasetVersion.objects.values_list("pk", flat=True)))


def nudge_validation(version_id: uuid.UUID) -> None:
    """Send the validation task; a dead broker is logged and left to the sweep."""
    from tenants.datasets.tasks import validate_dataset  # the task imports this module

    try:
        validate_dataset.delay(str(version_id))
    except Exception as error:
        logger.warning("validation of %s waits for the sweep, the broker said: %s", version_id, error)


def _dataset_named(tenant: Tenant, actor: Actor | None, name: str) -> Dataset:
    """Get or create, locked: two imports of one name get two version numbers."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    user = actor.user if actor else None
    return Dataset.objects.get_or_create(tenant=tenant, name=name, defaults={"created_by": user})[0]


def _exhaust(version: DatasetVersion) -> None:
    version_refuse(
        version=version,
        reason=f"validation_crashed: the worker died {ATTEMPTS_MAX} times on this dataset",
        report=None,
    )


def _delete(rows: QuerySet[Any]) -> None:
    try:
        rows.delete()
    except ProtectedError:
        raise ApplicationError(
            code="dataset_in_use", status=409, detail="Jobs were trained on it; their history keeps it."
        ) from None
