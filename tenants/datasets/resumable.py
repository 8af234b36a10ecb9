"""Chunked uploads: an archive comes in pieces, each checked and on the disk before it counts; any may be the last
before a connection, a process or a machine dies.

The row's ``received_bytes`` is the truth: what lies in the file beyond it was never acknowledged and is cut off. One
writer at a time holds the file's lock, which ends with its process. The whole size is reserved at the start.
"""

import hashlib
import logging
import os
from datetime import timedelta
from functools import partial
from io import FileIO
from uuid import UUID, uuid5

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from gpu_runtime.protocol.schema import Declared
from tenants.audit.services import audit
from tenants.datasets import storage
from tenants.datasets.chunk_file import Source, locked_file, write_chunk
from tenants.datasets.models import DatasetVersion, Upload, UploadState
from tenants.datasets.refusals import damaged, ended, incomplete, offset_mismatch, size_refused, too_many
from tenants.datasets.selectors import upload_get
from tenants.datasets.services import dataset_import, version_derived_from
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.quotas.leases import Lease, lease_hold, lease_release
from tenants.quotas.limits import limit_of
from tenants.quotas.models import Resource
from tenants.scope import platform_scope, tenant_scope

logger = logging.getLogger(__name__)

EXPIRES_AFTER = timedelta(hours=24)  # without a new chunk


@transaction.atomic
def upload_start(
    *,
    tenant: Tenant,
    actor: Actor,
    name: str,
    size_bytes: int,
    sha256: str,
    declared: Declared | None = None,
    derived_from: UUID | None = None,
) -> Upload:
    """Reserve the whole size and wait for chunks. Raises ApplicationError 409 where uploads or storage are used up."""
    if size_bytes > settings.JOYNEXUS_UPLOAD_MAX_BYTES:
        raise size_refused(settings.JOYNEXUS_UPLOAD_MAX_BYTES, size_bytes)
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    parent = version_derived_from(tenant, derived_from)
    with tenant_scope(tenant):
        under_way = Upload.objects.filter(state=UploadState.RECEIVING).count()
        limit = limit_of(tenant, Resource.UPLOADS)
        if limit is not None and under_way >= limit:
            raise too_many(limit, under_way)
        upload = Upload.objects.create(
            tenant=tenant,
            name=name,
            size_bytes=size_bytes,
            sha256=sha256.lower(),
            declared=declared.model_dump(mode="json", exclude_unset=True) if declared else {},
            derived_from=parent,
            created_by=actor.user,
            touched_at=timezone.now(),
        )
    audit(by=actor, verb="upload.started", target=upload, tenant=tenant, after={"size_bytes": size_bytes})
    lease_hold(_lease(upload), size_bytes, lasts=None)
    return upload


def upload_append(
    *, tenant: Tenant, upload_id: UUID, offset: int, source: Source, sha256: str | None = None
) -> Upload:
    """Append one chunk at ``offset``: whole, verified against ``sha256`` if given, and fsynced, or not at all.

    Raises ApplicationError: 409 where the offset is not the next one, another request writes or the upload ended, 413
    and 422 for a chunk of a wrong size or content, 507 for a full disk.
    """
    with locked_file(_receiving(tenant, upload_id)) as file:
        upload = _locked_state(tenant, upload_id, file)
        if offset != upload.received_bytes:
            raise offset_mismatch(offset, upload.received_bytes)
        received_bytes = offset + write_chunk(file, upload, source, sha256)
        with tenant_scope(tenant):
            row = Upload.objects.filter(pk=upload.pk, state=UploadState.RECEIVING, received_bytes=offset)
            if not row.update(received_bytes=received_bytes, touched_at=timezone.now()):
                raise ended(upload_get(tenant, upload_id))
    return upload_get(tenant, upload_id)


def upload_verify(*, tenant: Tenant, actor: Actor, upload_id: UUID) -> None:
    """Compare the whole file with what was declared, before `upload_complete`. One that is complete already passes.

    Raises ApplicationError: 409 if bytes are missing, 422 if they have another SHA-256. No chunk could mend that, so
    the upload is over then.
    """
    upload = upload_get(tenant, upload_id)
    if upload.state == UploadState.COMPLETED:
        return
    with locked_file(_receiving(tenant, upload_id)) as file:
        upload = _locked_state(tenant, upload_id, file)
        _require_whole(upload)
        file.seek(0)
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != upload.sha256:
        reason = f"digest_mismatch: its bytes have SHA-256 {found}"
        upload_abort(tenant=tenant, actor=actor, upload_id=upload_id, reason=reason)
        detail = f"The upload was declared with SHA-256 {upload.sha256!r}, its bytes have {found!r}. Start it anew."
        raise ApplicationError(code="digest_mismatch", status=422, detail=detail)


@transaction.atomic
def upload_complete(*, tenant: Tenant, actor: Actor, upload_id: UUID) -> DatasetVersion:
    """Make an upload that `upload_verify` passed a dataset version; validation follows. Again gives the same one."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    upload = upload_get(tenant, upload_id)
    if upload.state == UploadState.COMPLETED and upload.version is not None:
        return upload.version
    _require_receiving(upload)
    _require_whole(upload)
    path = storage.chunks_path(upload.pk)
    version = dataset_import(
        tenant=tenant,
        actor=actor,
        name=upload.name,
        source=path,
        declared=Declared.model_validate(upload.declared) if upload.declared else None,
        derived_from=upload.derived_from_id,
        version_id=uuid5(upload.pk, "dataset-version"),
        lease=_lease(upload),
    )
    with tenant_scope(tenant):
        row = Upload.objects.filter(pk=upload.pk, state=UploadState.RECEIVING)
        row.update(state=UploadState.COMPLETED, version=version)
    transaction.on_commit(partial(path.unlink, missing_ok=True))
    return version


@transaction.atomic
def upload_abort(*, tenant: Tenant, actor: Actor | None, upload_id: UUID, reason: str = "") -> None:
    """End an upload and give back its bytes and its reservation. Again is harmless; 409 for a complete one."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    upload = upload_get(tenant, upload_id)
    if upload.state == UploadState.ABORTED:
        return
    _require_receiving(upload)
    reason = reason or "by its tenant"
    with tenant_scope(tenant):
        Upload.objects.filter(pk=upload.pk).update(state=UploadState.ABORTED, reason=reason)
    audit(by=actor, verb="upload.aborted", target=upload, tenant=tenant, reason=reason)
    lease_release(_lease(upload))
    transaction.on_commit(partial(storage.chunks_path(upload.pk).unlink, missing_ok=True))


def uploads_sweep() -> int:
    """End uploads that stood still for a day. Returns how many."""
    with platform_scope():
        late = Upload.objects.filter(state=UploadState.RECEIVING, touched_at__lt=timezone.now() - EXPIRES_AFTER)
        stale = list(late.select_related("tenant"))
    return sum(_expire(upload) for upload in stale)


@transaction.atomic
def _expire(upload: Upload) -> bool:
    """False if a chunk came, or it ended, meanwhile."""
    Tenant.objects.select_for_update(no_key=True).get(pk=upload.tenant_id)
    with tenant_scope(upload.tenant):
        row = Upload.objects.select_for_update(no_key=True).filter(pk=upload.pk, state=UploadState.RECEIVING)
        still = row.filter(touched_at=upload.touched_at).first() is not None
    if still:
        upload_abort(tenant=upload.tenant, actor=None, upload_id=upload.pk, reason="expired: no chunk for 24 hours")
    return still


def _locked_state(tenant: Tenant, upload_id: UUID, file: FileIO) -> Upload:
    """The upload as it is now that nobody else writes. Raises ApplicationError 409 if its file lost bytes."""
    upload = _receiving(tenant, upload_id)
    if os.fstat(file.fileno()).st_size < upload.received_bytes:
        logger.error("upload %s: the file is shorter than %d bytes", upload.pk, upload.received_bytes)
        raise damaged()
    return upload


def _receiving(tenant: Tenant, upload_id: UUID) -> Upload:
    upload = upload_get(tenant, upload_id)
    _require_receiving(upload)
    return upload


def _require_receiving(upload: Upload) -> None:
    if upload.state != UploadState.RECEIVING:
        raise ended(upload)


def _require_whole(upload: Upload) -> None:
    if upload.received_bytes != upload.size_bytes:
        raise incomplete(upload)


def _lease(upload: Upload) -> Lease:
    return Lease(tenant=upload.tenant, id=upload.pk)
