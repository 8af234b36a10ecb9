"""Telling the runtime what it need not keep: deleted files, old checkpoints, features of deleted datasets.

Each is told until the runtime has said that it is gone: by message at once, by the sweep if that was lost or the
runtime was away.
"""

import logging
from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from gpu_runtime.protocol.messages import FeatureStoreStatus
from jobs.models import Artifact, ArtifactKind, JobAttempt
from jobs.runtime_client import RuntimeClient, RuntimeRefused, RuntimeUnreachable
from jobs.states import ATTEMPT_TERMINAL
from tenants.datasets.models import DatasetVersion
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)

CHECKPOINTS_KEPT = timedelta(days=1)  # no attempt is resumed once it has ended: for whoever looks into a failure
_TOLD_AGAIN_AFTER = timedelta(seconds=10)  # the message of a younger deletion is under way
_LIMIT = 50  # of each per sweep; the next sweep takes the rest


def artifact_remove(artifact_id: UUID, *, runtime: RuntimeClient) -> bool:
    """Have the runtime remove a deleted file; True once it is gone there.

    With a policy go the checkpoints of its attempt.
    """
    with platform_scope():
        artifact = Artifact.objects.filter(pk=artifact_id, deleted_at__isnull=False, removed_at=None).first()
        if artifact is None:
            return True
        try:
            runtime.artifact_delete(artifact.runtime_key)
        except (RuntimeUnreachable, RuntimeRefused) as error:
            logger.info("artifact %s is not removed yet, the sweep repeats it: %s", artifact_id, error)
            return False
        Artifact.objects.filter(pk=artifact_id).update(removed_at=timezone.now())
        if artifact.kind == ArtifactKind.ADAPTER:
            for attempt in JobAttempt.objects.filter(job_id=artifact.job_id, number=artifact.attempt):
                _remove_checkpoints(attempt, runtime)
    return True


def removals_sweep(*, runtime: RuntimeClient) -> int:
    """Tell again what was not confirmed, and forget old checkpoints. Returns how many went."""
    now, removed = timezone.now(), 0
    with platform_scope():
        waiting = Artifact.objects.filter(deleted_at__lte=now - _TOLD_AGAIN_AFTER, removed_at=None)
        artifacts = list(waiting.order_by("deleted_at", "pk").values_list("pk", flat=True)[:_LIMIT])
        ended = JobAttempt.objects.filter(finished_at__lte=now - CHECKPOINTS_KEPT, checkpoints_removed_at=None)
        attempts = list(ended.order_by("finished_at", "pk")[:_LIMIT])
        for artifact_id in artifacts:
            removed += artifact_remove(artifact_id, runtime=runtime)
        for attempt in attempts:
            removed += _remove_checkpoints(attempt, runtime)
    return removed


def _remove_checkpoints(attempt: JobAttempt, runtime: RuntimeClient) -> bool:
    if attempt.checkpoints_removed_at is not None or attempt.state not in ATTEMPT_TERMINAL:
        return False
    try:
        runtime.checkpoints_delete(str(attempt.job_id), attempt.number)
    except (RuntimeUnreachable, RuntimeRefused) as error:
        logger.info("checkpoints of job %s attempt %d stay for now: %s", attempt.job_id, attempt.number, error)
        return False
    return JobAttempt.objects.filter(pk=attempt.pk).update(checkpoints_removed_at=timezone.now()) == 1


def features_sweep(told: FeatureStoreStatus | None, *, runtime: RuntimeClient) -> int:
    """Have the runtime drop features of dataset versions that are deleted. Returns how many versions went.

    It tells what it keeps until that is gone, so nothing is remembered here. Ids that are none of ours stay.
    """
    kept = [] if told is None else [version_id for version_id in told.versions if _is_uuid(version_id)]
    with platform_scope():
        known = {str(pk) for pk in DatasetVersion.objects.filter(pk__in=kept).values_list("pk", flat=True)}
    deleted = [version_id for version_id in kept if version_id not in known]
    return sum(_remove_features(version_id, runtime) for version_id in deleted[:_LIMIT])


def _remove_features(version_id: str, runtime: RuntimeClient) -> bool:
    try:
        runtime.features_delete(version_id)
    except (RuntimeUnreachable, RuntimeRefused) as error:
        logger.info("features of dataset version %s stay for now: %s", version_id, error)
        return False
    return True


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
