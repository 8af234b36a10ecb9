"""Writes of the datasets app: taking recordings in, sealing or refusing them, deleting them."""

import logging
import uuid
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.db.models.deletion import ProtectedError
from django.utils import timezone

from gpu_runtime.protocol.schema import Declared, ValidationReport
from tenants.datasets import storage
from tenants.datasets.models import Dataset, DatasetVersion, VersionState
from tenants.datasets.selectors import dataset_get, version_get
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.scope import platform_scope, tenant_scope

logger = logging.getLogger(__name__)

CLAIM_TTL = timedelta(minutes=20)  # longer than a validation may take
NUDGE_EVERY = timedelta(seconds=30)  # a waiting version is asked for again: its message may be lost or just late
ATTEMPTS_MAX = 3


def dataset_import(
    *, tenant: Tenant, actor: Actor | None, name: str, source: Path, declared: Declared | None = None
) -> DatasetVersion:
    """Take in a recording as the next version of the dataset called ``name`` and ask for its validation.

    ``source`` is a finished upload, or a folder or zip of this server (operators only). Raises ApplicationError.
    """
    version_id = uuid.uuid4()
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
                claimed_until=timezone.now() + NUDGE_EVERY,
            )
    except BaseException:
        storage.discard(version_id)
        raise
    transaction.on_commit(lambda: nudge_validation(version_id))
    return version


def version_claim(version_id: uuid.UUID) -> DatasetVersion | None:
    """Claim a version for validation by one conditional UPDATE; None if somebody has it or it is settled.

    Opens the platform's scope itself: a task knows nothing but the id.
    """
    now = timezone.now()
    with platform_scope():
        claimed = (
            _claimable(now)
            .filter(pk=version_id)
            .update(state=VersionState.VALIDATING, claimed_until=now + CLAIM_TTL, attempts=F("attempts") + 1)
        )
        return DatasetVersion.objects.select_related("tenant").get(pk=version_id) if claimed else None


def version_seal(*, version: DatasetVersion, report: ValidationReport) -> bool:
    """VALIDATING -> READY: report, summary and hashes are final. False if the claim was lost meanwhile."""
    summary = report.summary
    if summary is None:
        raise ValueError("a version is sealed with a summary only")
    return _settle(
        version,
        state=VersionState.READY,
        report=report.model_dump(mode="json", by_alias=True),
        summary=summary.model_dump(mode="json", by_alias=True),
        schema_signature=summary.schema_.signature,
        statistics_hash=summary.statistics.hash,
        fingerprint=summary.fingerprint,
        size_bytes=summary.size_bytes,
    )


def version_refuse(*, version: DatasetVersion, reason: str, report: ValidationReport | None) -> bool:
    """VALIDATING -> INVALID with the reason and the defects found; the bytes are given back."""
    settled = _settle(
        version,
        state=VersionState.INVALID,
        reason=reason[:500],
        report=report.model_dump(mode="json", by_alias=True) if report else None,
    )
    if settled:
        storage.discard(version.pk, version.storage_key)
    return settled


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
        for version in DatasetVersion.objects.filter(_stale(now), attempts__gte=ATTEMPTS_MAX):
            _exhaust(version)
        overdue = Q(claimed_until=None) | Q(claimed_until__lt=now)
        waiting = list(_claimable(now).filter(overdue).values_list("pk", flat=True)[:100])
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
    Tenant.objects.select_for_update().get(pk=tenant.pk)
    user = actor.user if actor else None
    return Dataset.objects.get_or_create(tenant=tenant, name=name, defaults={"created_by": user})[0]


def _claimable(now: datetime) -> QuerySet[DatasetVersion]:
    received = Q(state=VersionState.RECEIVED)
    return DatasetVersion.objects.filter(received | _stale(now), attempts__lt=ATTEMPTS_MAX).order_by("created_at")


def _stale(now: datetime) -> Q:
    """Claimed by a worker that did not come back."""
    return Q(state=VersionState.VALIDATING, claimed_until__lt=now)


def _settle(version: DatasetVersion, **fields: object) -> bool:
    """VALIDATING -> a final state, only by the claim that is still the newest (fencing by ``attempts``)."""
    with tenant_scope(version.tenant):
        changed = DatasetVersion.objects.filter(
            pk=version.pk, state=VersionState.VALIDATING, attempts=version.attempts
        ).update(claimed_until=None, **fields)
    if not changed:
        logger.warning("validation of %s came too late: attempt %d is superseded", version.pk, version.attempts)
    return bool(changed)


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
