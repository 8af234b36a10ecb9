"""How long published files are kept: until their tenant deletes them, or until the time it has set.

Deleting takes effect at once: nothing is handed out or begun from the file any more, and its bytes are given back.
The runtime removes them when it hears of it (`jobs/services/removal.py`). The row stays: jobs may have begun from it.
"""

import logging
from datetime import timedelta
from typing import Annotated
from uuid import UUID

from django.db import transaction
from django.utils import timezone
from pydantic import Field

from gpu_runtime.protocol.base import Message
from jobs.files import require_kept
from jobs.models import Artifact, ImportState, Job
from jobs.selectors.jobs import artifact_get
from jobs.services.outbox import DELETE_ARTIFACT, outbox_add
from jobs.states import LIVE
from tenants.audit.services import audit
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.quotas.storage import storage_release
from tenants.scope import platform_scope, tenant_scope

logger = logging.getLogger(__name__)

KEEP_DAYS_MAX = 3650
_EXPIRED_PER_SWEEP = 100


class ArtifactChange(Message):
    """What may be changed of a published file."""

    keep_days: Annotated[
        int | None, Field(ge=1, le=KEEP_DAYS_MAX, description="From now; then it is deleted. null: until you do so.")
    ]


def artifact_delete(*, actor: Actor, artifact_id: UUID) -> None:
    """Delete a published file; again is harmless.

    Raises ApplicationError: 404 for a missing and a foreign one, 409 while a job that has not ended starts from it.
    """
    with tenant_scope(actor.tenant):
        artifact = artifact_get(actor.tenant, artifact_id)
        _delete(artifact.pk, by=actor, tenant=actor.tenant, reason="")


@transaction.atomic
def artifact_keep(*, actor: Actor, artifact_id: UUID, keep_days: int | None) -> Artifact:
    """Say how many days from now a file is kept; None: until it is deleted. Raises ApplicationError 404 and 410."""
    with tenant_scope(actor.tenant):
        key = artifact_get(actor.tenant, artifact_id).pk
        artifact = Artifact.objects.select_for_update(no_key=True, of=("self",)).select_related("job").get(pk=key)
        require_kept(artifact)
        before = artifact.keep_until
        artifact.keep_until = None if keep_days is None else timezone.now() + timedelta(days=keep_days)
        artifact.save(update_fields=["keep_until"])
        audit(
            by=actor,
            verb="artifact.retention_set",
            target=artifact,
            tenant=actor.tenant,
            name=artifact.name,
            before={"keep_until": before.isoformat() if before else None},
            after={"keep_until": artifact.keep_until.isoformat() if artifact.keep_until else None},
        )
    return artifact


def artifacts_expire() -> int:
    """Delete what its tenant wanted to keep until now; what a job still starts from waits. Returns how many went."""
    with platform_scope():
        over = Artifact.objects.filter(keep_until__lte=timezone.now(), deleted_at=None).select_related("tenant")
        rows = list(over.order_by("keep_until", "pk")[:_EXPIRED_PER_SWEEP])
    deleted = 0
    for row in rows:
        try:
            deleted += _delete(row.pk, by=None, tenant=row.tenant, reason="its retention is over")
        except ApplicationError as error:
            logger.info("artifact %s stays for now: %s", row.pk, error.detail)
    return deleted


@transaction.atomic
def _delete(artifact_id: UUID, *, by: Actor | None, tenant: Tenant, reason: str) -> bool:
    """False if it was deleted before. The tenant's lock comes first: no job is admitted meanwhile that needs it."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    with tenant_scope(tenant):
        artifact = Artifact.objects.select_for_update(no_key=True).get(pk=artifact_id)
        if artifact.deleted_at is not None:
            return False
        _require_unused(artifact)
        artifact.deleted_at = timezone.now()
        artifact.save(update_fields=["deleted_at"])
        told = {"kind": artifact.kind, "size_bytes": artifact.size_bytes, "job": str(artifact.job_id)}
        verb = "artifact.deleted"
        audit(by=by, verb=verb, target=artifact, tenant=tenant, name=artifact.name, before=told, reason=reason)
        storage_release(tenant, used=artifact.size_bytes)
        outbox_add(topic=DELETE_ARTIFACT, key=str(artifact.pk))
    return True


def _require_unused(artifact: Artifact) -> None:
    users = Job.objects.filter(policy=artifact, state__in=LIVE).order_by("created_at").values_list("pk", flat=True)
    if user := users.first():
        detail = f"Job {user} starts from this file and has not ended. Delete it afterwards, or cancel the job."
        raise ApplicationError(code="artifact_in_use", status=409, detail=detail)
    under_way = (ImportState.WAITING, ImportState.IMPORTING)
    if Artifact.objects.filter(pk=artifact.pk, dataset_import__state__in=under_way).exists():
        detail = "The recorded episodes are on their way into your datasets. Delete the file when they are there."
        raise ApplicationError(code="artifact_in_use", status=409, detail=detail)
