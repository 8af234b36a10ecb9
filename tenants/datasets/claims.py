"""Who validates a dataset version: claims with an expiry and a fencing number, and the two ways they end."""

import logging
import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from gpu_runtime.protocol.schema import ValidationReport
from tenants.datasets import storage
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.quotas.storage import storage_add
from tenants.scope import platform_scope, tenant_scope
from tenants.webhooks.events import EventType
from tenants.webhooks.services import webhook_event

logger = logging.getLogger(__name__)

CLAIM_TTL = timedelta(minutes=1)  # renewed while the child reads; a killed worker's version is free again soon
ATTEMPTS_MAX = 3
_EVENT_OF_STATE: dict[object, EventType] = {
    VersionState.READY: EventType.DATASET_READY,
    VersionState.INVALID: EventType.DATASET_INVALID,
}


def version_claim(version_id: uuid.UUID) -> DatasetVersion | None:
    """Claim a version for validation by one conditional UPDATE; None if somebody has it or it is settled.

    Also None while as many are being read as the deployment allows: long validations must leave workers for
    dispatching jobs. (Two claims at the same instant may both pass.) Opens the platform's scope itself: a task
    knows nothing but the id.
    """
    now = timezone.now()
    with platform_scope():
        in_progress = DatasetVersion.objects.filter(state=VersionState.VALIDATING, claimed_until__gte=now)
        if in_progress.count() >= settings.JOYNEXUS_VALIDATIONS_MAX:
            return None
        claimed = (
            claimable(now)
            .filter(pk=version_id)
            .update(state=VersionState.VALIDATING, claimed_until=now + CLAIM_TTL, attempts=F("attempts") + 1)
        )
        return DatasetVersion.objects.select_related("tenant").get(pk=version_id) if claimed else None


def version_renew(version: DatasetVersion) -> bool:
    """Keep a claim while the reading goes on. False if it was lost: stop then."""
    with tenant_scope(version.tenant):
        return bool(_held(version).update(claimed_until=timezone.now() + CLAIM_TTL))


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
        sealed_at=timezone.now(),
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


def claimable(now: datetime) -> QuerySet[DatasetVersion]:
    """Received, or left behind by a worker, and not tried too often yet."""
    received = Q(state=VersionState.RECEIVED)
    return DatasetVersion.objects.filter(received | stale(now), attempts__lt=ATTEMPTS_MAX).order_by("created_at")


def stale(now: datetime) -> Q:
    """Claimed by a worker that did not come back."""
    return Q(state=VersionState.VALIDATING, claimed_until__lt=now)


def _settle(version: DatasetVersion, **fields: object) -> bool:
    """VALIDATING -> a final state, if the claim is still the newest. Bytes of a version deleted meanwhile go."""
    with tenant_scope(version.tenant), transaction.atomic():
        if _held(version).update(claimed_until=None, **fields):
            webhook_event(version.tenant_id, _EVENT_OF_STATE[fields["state"]], _told(version, fields))
            kept_bytes = summary_bytes if isinstance(summary_bytes := fields.get("size_bytes"), int) else 0
            storage_add(version.tenant, kept_bytes - version.size_bytes)  # unpacked, or nothing
            return True
        deleted = not DatasetVersion.objects.filter(pk=version.pk).exists()
    logger.warning("validation of %s came too late: attempt %d is superseded", version.pk, version.attempts)
    if deleted:
        storage.discard(version.pk, version.storage_key)
    return False


def _told(version: DatasetVersion, fields: dict[str, object]) -> dict[str, object]:
    return {
        "version_id": str(version.pk),
        "dataset_id": str(version.dataset_id),
        "number": version.number,
        "state": str(fields["state"]),
        "reason": str(fields.get("reason", "")),
    }


def _held(version: DatasetVersion) -> QuerySet[DatasetVersion]:
    """The row, as long as this claim is the newest: ``attempts`` is the fencing number."""
    return DatasetVersion.objects.filter(pk=version.pk, state=VersionState.VALIDATING, attempts=version.attempts)
