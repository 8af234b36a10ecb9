"""Recorded episodes become a dataset version of their tenant: once, whatever is repeated or killed on the way.

A published dataset has a row of its own. A worker claims it, copies the archive from the runtime, and one transaction
marks the row and creates the version. A worker that dies leaves its claim to expire; the sweep asks again.
"""

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from jobs.models import Artifact, ArtifactKind, DatasetImport, ImportState, Job
from jobs.runtime_client import RuntimeClient, RuntimeRefused, RuntimeUnreachable
from jobs.services.outbox import IMPORT_DATASET, outbox_add
from jobs.services.transition import job_log
from tenants.datasets.services import dataset_import
from tenants.datasets.uploads import StagedUpload
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)

CLAIM_TTL = timedelta(minutes=1)  # renewed while the copy goes on; a killed worker's import is free again soon
NUDGE_EVERY = timedelta(seconds=30)  # a waiting import is asked for again: its message may be lost
IMPORTS_MAX = 1  # at a time: long copies must leave workers for dispatching jobs
TRIES_MAX = 8  # of one round, of a copy that is refused or differs from what was published
_RENEW_EVERY_S = 10.0
_PAUSE_MAX = timedelta(minutes=5)
_FULL = 507


class ClaimLost(Exception):
    """Somebody else copies this dataset now."""


class Differs(Exception):
    """What was copied is not what was published."""


def imports_request(runtime_keys: Collection[str]) -> None:
    """Ask for the import of published datasets, in the transaction that stored them. Again is harmless."""
    published = Artifact.objects.filter(runtime_key__in=runtime_keys, kind=ArtifactKind.DATASET)
    for artifact in published.filter(dataset_import=None).order_by("pk"):
        DatasetImport.objects.create(tenant_id=artifact.tenant_id, artifact=artifact)
        outbox_add(topic=IMPORT_DATASET, key=str(artifact.pk))


def import_run(artifact_id: UUID, *, runtime: RuntimeClient) -> None:
    """Copy one published dataset and take it in as an upload would be; validation follows.

    Whoever does not get the claim does nothing. A failure is told on the job; it is tried again unless it is final.
    """
    row = _claim(artifact_id)
    if row is None:
        return
    try:
        with _copied(row, runtime) as upload:
            _take_in(row, upload)
    except ClaimLost:
        logger.warning("import of %s: attempt %d is superseded", row.artifact_id, row.attempts)
    except RuntimeUnreachable as error:
        _again(row, str(error))
    except (RuntimeRefused, Differs) as error:
        _again_or_give_up(row, str(error))
    except ApplicationError as error:
        _refused(row, error)
    _ask_for_next()


def imports_sweep() -> int:
    """Ask again for every import whose message or worker was lost, or whose pause is over. Returns how many."""
    now = timezone.now()
    with platform_scope():
        if _under_way(now).count() >= IMPORTS_MAX:
            return 0
        overdue = Q(claimed_until__lte=now) | Q(claimed_until=None, created_at__lte=now - NUDGE_EVERY)
        waiting = list(_claimable(now).filter(overdue).order_by("created_at").values_list("artifact_id", flat=True))
        with transaction.atomic():
            for artifact_id in waiting[:IMPORTS_MAX]:  # the next one is asked for when a place is free
                outbox_add(topic=IMPORT_DATASET, key=str(artifact_id))
    return len(waiting[:IMPORTS_MAX])


def _claim(artifact_id: UUID) -> DatasetImport | None:
    """By one conditional UPDATE; None if it is done, somebody has it, or as many as allowed are under way."""
    now = timezone.now()
    with platform_scope():
        if _under_way(now).exclude(artifact_id=artifact_id).count() >= IMPORTS_MAX:
            return None
        row = _claimable(now).filter(artifact_id=artifact_id)
        if not row.update(state=ImportState.IMPORTING, claimed_until=now + CLAIM_TTL, attempts=F("attempts") + 1):
            return None
        return DatasetImport.objects.select_related("tenant", "artifact__job").get(artifact_id=artifact_id)


def _under_way(now: datetime) -> QuerySet[DatasetImport]:
    return DatasetImport.objects.filter(state=ImportState.IMPORTING, claimed_until__gt=now)


def _claimable(now: datetime) -> QuerySet[DatasetImport]:
    """Waiting and not in a pause, or left behind by a worker."""
    free = Q(claimed_until=None) | Q(claimed_until__lte=now)
    return DatasetImport.objects.filter(free, state__in=[ImportState.WAITING, ImportState.IMPORTING])


def _held(row: DatasetImport) -> QuerySet[DatasetImport]:
    """The row, as long as this claim is the newest: ``attempts`` is the fencing number."""
    return DatasetImport.objects.filter(pk=row.pk, state=ImportState.IMPORTING, attempts=row.attempts)


@contextmanager
def _copied(row: DatasetImport, runtime: RuntimeClient) -> Iterator[StagedUpload]:
    """The checked archive on the datasets' own disk, its space reserved before the first byte.

    Raises Differs, ClaimLost; ApplicationError (size, storage limit, full disk).
    """
    artifact = row.artifact
    upload = StagedUpload(
        tenant=row.tenant,
        max_bytes=settings.JOYNEXUS_UPLOAD_MAX_BYTES,
        expected_bytes=min(artifact.size_bytes, settings.JOYNEXUS_UPLOAD_MAX_BYTES),
        lease_id=uuid5(artifact.pk, "storage-lease"),  # a killed worker's reservation is its successor's
    )
    try:
        stream = runtime.artifact(artifact.runtime_key)
        try:
            renew_at_s = time.monotonic() + _RENEW_EVERY_S
            for chunk in stream.chunks:
                upload.write(chunk)
                if time.monotonic() >= renew_at_s:
                    _renew(row)
                    renew_at_s = time.monotonic() + _RENEW_EVERY_S
        finally:
            stream.close()
        upload.finish()
        if upload.sha256 != artifact.sha256:
            raise Differs(f"{upload.size_bytes} bytes have SHA-256 {upload.sha256}, published was {artifact.sha256}")
        yield upload
    finally:
        upload.close()


def _renew(row: DatasetImport) -> None:
    with platform_scope():
        if not _held(row).update(claimed_until=timezone.now() + CLAIM_TTL):
            raise ClaimLost


@transaction.atomic
def _take_in(row: DatasetImport, upload: StagedUpload) -> None:
    """The row first: its lock lets one worker at a time pass, and the loser finds it settled.

    The version's id follows from the artifact's, so a worker killed here left bytes that the next one replaces.
    """
    job, version_id = row.artifact.job, uuid5(row.artifact_id, "dataset-version")
    with platform_scope():
        Tenant.objects.select_for_update(no_key=True).get(pk=row.tenant_id)
        Job.objects.select_for_update(no_key=True).get(pk=job.pk)  # before the storage account, as everywhere
        settled = {"state": ImportState.IMPORTED, "version_id": version_id, "claimed_until": None, "reason": ""}
        if not _held(row).update(**settled):
            raise ClaimLost
    name = job.spec.get("dataset_name") or row.artifact.name
    version = dataset_import(
        tenant=row.tenant,
        actor=None,
        name=name,
        source=upload.path,
        recorded_from=job.pk,
        version_id=version_id,
        lease=upload.lease,
    )
    told = f"The episodes are version {version.number} of dataset {name!r}; validation follows."
    job_log(job, level="info", message=told)


def _tries(row: DatasetImport) -> int:
    """1 to TRIES_MAX: claims are numbered through, a round of tries may follow another."""
    return (row.attempts - 1) % TRIES_MAX + 1


def _again(row: DatasetImport, reason: str) -> None:
    """Wait longer each time. The job's stream tells each reason once."""
    pause = min(_PAUSE_MAX, timedelta(seconds=5 * 2 ** _tries(row)))
    _settle(row, ImportState.WAITING, reason, until=timezone.now() + pause, level="warning", what="is tried again")


def _refused(row: DatasetImport, error: ApplicationError) -> None:
    """A full disk is the operator's to mend; the tenant may make room within its limit; all else is final."""
    if error.status == _FULL:
        _again(row, error.detail)
    elif error.code == "quota_exceeded":
        _again_or_give_up(row, error.detail)
    else:
        _give_up(row, error.detail)


def _again_or_give_up(row: DatasetImport, reason: str) -> None:
    _give_up(row, reason) if _tries(row) == TRIES_MAX else _again(row, reason)


def _give_up(row: DatasetImport, reason: str) -> None:
    _settle(row, ImportState.FAILED, reason, until=None, level="error", what="is given up")


@transaction.atomic
def _settle(
    row: DatasetImport, state: ImportState, reason: str, *, until: datetime | None, level: str, what: str
) -> None:
    known, reason = row.reason, reason[:500]
    with platform_scope():
        if not _held(row).update(state=state, reason=reason, claimed_until=until):
            return
    logger.warning("import of %s %s: %s", row.artifact_id, what, reason)
    if reason != known or state == ImportState.FAILED:
        job_log(row.artifact.job, level=level, message=f"Taking in the recorded episodes {what}: {reason}")


def _ask_for_next() -> None:
    """A place is free now."""
    with platform_scope(), transaction.atomic():
        now = timezone.now()
        waiting = _claimable(now).filter(state=ImportState.WAITING).order_by("created_at")
        artifact_id = waiting.values_list("artifact_id", flat=True).first()
        if artifact_id is not None:
            outbox_add(topic=IMPORT_DATASET, key=str(artifact_id))
