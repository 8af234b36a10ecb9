"""Writes of the datasets app: taking recordings in, seeing that they are validated, renaming."""

import contextlib
import logging
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from django.db import DatabaseError, transaction
from django.db.models import Max, Q
from django.utils import timezone

from gpu_runtime.protocol.schema import Declared
from tenants.audit.services import audit
from tenants.datasets import storage
from tenants.datasets.claims import ATTEMPTS_MAX, claimable, stale, version_refuse
from tenants.datasets.models import Dataset, DatasetVersion, Upload, UploadState, VersionState
from tenants.datasets.selectors import dataset_get, version_get
from tenants.errors import ApplicationError, FieldError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.quotas.leases import Lease, lease_hold, lease_release, lease_settle
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
    derived_from: uuid.UUID | None = None,
    recorded_from: uuid.UUID | None = None,
    version_id: uuid.UUID | None = None,
    lease: Lease | None = None,
) -> DatasetVersion:
    """Take in a recording as the next version of the dataset called ``name`` and ask for its validation.

    ``source`` is a finished upload, or a folder or zip of this server (operators only), whose space is reserved by
    ``lease``, else here. ``derived_from`` is the version it was made from, ``recorded_from`` the job that made it;
    ``version_id`` its future id, where the caller may have to repeat himself. Raises ApplicationError.
    """
    version_id = version_id or uuid.uuid4()
    held = lease or Lease(tenant=tenant, id=version_id)
    parent = version_derived_from(tenant, derived_from)
    try:
        if lease is None:
            lease_hold(held, storage.size_of(source))
        size_bytes = storage.take_in(source, version_id)
        with tenant_scope(tenant), transaction.atomic():
            dataset = _dataset_with_next_number(tenant, actor, name)
            version = DatasetVersion.objects.create(
                id=version_id,
                tenant=tenant,
                dataset=dataset,
                number=dataset.newest_number,
                storage_key=storage.storage_key(tenant.pk, version_id),
                declared=declared.model_dump(mode="json", exclude_unset=True) if declared else {},
                size_bytes=size_bytes,
                derived_from=parent,
                recorded_from=recorded_from,
                claimed_until=timezone.now() + NUDGE_EVERY,
            )
            _audit_new(actor, version)
            lease_settle(held, used=size_bytes)
    except BaseException:
        storage.discard(version_id)
        if lease is None:
            with contextlib.suppress(DatabaseError):  # a broken outer transaction takes the lease with it
                lease_release(held)
        raise
    transaction.on_commit(lambda: nudge_validation(version_id))
    return version


def version_derived_from(tenant: Tenant, version_id: uuid.UUID | None) -> DatasetVersion | None:
    """The ready version a new one says it was made from. Raises ApplicationError 422 for one that is not there."""
    if version_id is None:
        return None
    try:
        parent = version_get(tenant, version_id)
    except ApplicationError:
        raise _not_derivable("not_found", f"There is no dataset version {version_id}.") from None
    if parent.state != VersionState.READY:
        raise _not_derivable("not_ready", f"Version {version_id} is {parent.state}; only a ready one has descendants.")
    return parent


@transaction.atomic
def dataset_change(
    *,
    tenant: Tenant,
    actor: Actor,
    dataset_id: uuid.UUID,
    changes: dict[str, object],
    precondition: Callable[[int], None],
) -> Dataset:
    """Rename a dataset or change ``keep_days`` (null: for ever); effective with the next sweep.

    ``precondition`` gets the locked row's version and refuses what the caller has not seen. Raises ApplicationError.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    dataset = dataset_get(tenant, dataset_id)
    precondition(dataset.version)
    before = {name: getattr(dataset, name) for name in changes}
    if before == changes:
        return dataset
    with tenant_scope(tenant):
        name = changes.get("name", dataset.name)
        if Dataset.objects.filter(tenant=tenant, name=name).exclude(pk=dataset.pk).exists():
            detail = f"{name!r} is the name of another dataset."
            error = FieldError(pointer="/name", code="taken", detail=detail)
            raise ApplicationError(code="name_taken", status=409, detail=detail, errors=(error,))
        Dataset.objects.filter(pk=dataset.pk).update(**changes, version=dataset.version + 1)
    audit(by=actor, verb="dataset.changed", target=dataset, tenant=tenant, before=before, after=changes)
    return dataset_get(tenant, dataset_id)


def nudge_next() -> None:
    """Ask for the version that has waited longest, now that a place is free."""
    with platform_scope():
        waiting = DatasetVersion.objects.filter(state=VersionState.RECEIVED).order_by("created_at")
        next_id = waiting.values_list("pk", flat=True).first()
    if next_id is not None:
        nudge_validation(next_id)


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
    """Remove bytes of uploads that never became a version. Returns how many files."""
    with platform_scope():
        versions = list(DatasetVersion.objects.values_list("pk", flat=True))
        uploads = list(Upload.objects.filter(state=UploadState.RECEIVING).values_list("pk", flat=True))
    return storage.sweep_incoming([*versions, *uploads])


def nudge_validation(version_id: uuid.UUID) -> None:
    """Send the validation task; a dead broker is logged and left to the sweep."""
    from tenants.datasets.tasks import validate_dataset  # the task imports this module

    try:
        validate_dataset.delay(str(version_id))
    except Exception as error:
        logger.warning("validation of %s waits for the sweep, the broker said: %s", version_id, error)


def _dataset_with_next_number(tenant: Tenant, actor: Actor | None, name: str) -> Dataset:
    """Get or create, with a fresh ``newest_number``. The tenant is locked: two imports of one name get two numbers."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    user = actor.user if actor else None
    dataset, is_new = Dataset.objects.get_or_create(tenant=tenant, name=name, defaults={"created_by": user})
    if is_new:
        audit(by=actor, verb="dataset.created", target=dataset, tenant=tenant)
    else:
        dataset.version += 1
    newest = dataset.versions.aggregate(newest=Max("number"))["newest"] or 0
    dataset.newest_number = max(dataset.newest_number, newest) + 1
    dataset.save(update_fields=["newest_number", "version"])
    return dataset


def _audit_new(actor: Actor | None, version: DatasetVersion) -> None:
    after: dict[str, object] = {"number": version.number, "size_bytes": version.size_bytes}
    if version.derived_from_id is not None:
        after["derived_from"] = str(version.derived_from_id)
    reason = f"recorded by job {version.recorded_from}" if version.recorded_from else ""
    audit(by=actor, verb="dataset_version.created", target=version, tenant=version.tenant, after=after, reason=reason)


def _not_derivable(code: str, detail: str) -> ApplicationError:
    error = FieldError(pointer="/derived_from", code=code, detail=detail)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))


def _exhaust(version: DatasetVersion) -> None:
    version_refuse(
        version=version,
        reason=f"validation_crashed: the worker died {ATTEMPTS_MAX} times on this dataset",
        report=None,
    )
