"""The validation task: claim, read in a child process, settle."""

import logging
from pathlib import Path
from uuid import UUID

from celery import shared_task

from gpu_runtime.protocol.schema import Defect, ValidationReport
from tenants.datasets import claims, preview_cache, removal, resumable, services, storage, validation
from tenants.datasets.models import DatasetVersion
from tenants.quotas.leases import leases_sweep

logger = logging.getLogger(__name__)


@shared_task(
    name="tenants.datasets.tasks.validate_dataset",
    soft_time_limit=validation.WALL_LIMIT_S + 30,
    time_limit=validation.WALL_LIMIT_S + 60,
)
def validate_dataset(version_id: str) -> None:
    """Validate one version. Sent at least once: whoever does not get the claim leaves it alone."""
    version = claims.version_claim(UUID(version_id))
    if version is None:
        return
    try:
        _read(version)
    except validation.ClaimLost:
        logger.warning("validation of %s: attempt %d is superseded", version.pk, version.attempts)
    services.nudge_next()


@shared_task(name="tenants.datasets.tasks.sweep_storage")
def sweep_storage() -> int:
    """Remove what interrupted uploads left behind, and previews beyond their share of the disk."""
    preview_cache.trim()
    return services.sweep_storage()


@shared_task(name="tenants.datasets.tasks.sweep_transfers")
def sweep_transfers() -> int:
    """End uploads that stood still for a day, and reservations of processes that were killed."""
    return resumable.uploads_sweep() + leases_sweep()


@shared_task(name="tenants.datasets.tasks.apply_retention")
def apply_retention() -> int:
    """Delete versions that were to be kept only so long."""
    return removal.retention_sweep()


def _read(version: DatasetVersion) -> None:
    path, extract_to = _bytes_of(version)
    if path is None:
        reason = "bytes_missing: the upload is gone; upload it again"
        claims.version_refuse(version=version, reason=reason, report=None)
        return
    outcome = validation.validate(
        path,
        extract_to=extract_to,
        declared=version.declared,
        heartbeat=lambda: claims.version_renew(version),
    )
    _settle(version, outcome, extract_to or path)


def _bytes_of(version: DatasetVersion) -> tuple[Path | None, Path | None]:
    """(what to read, where to unpack it). After a crash between move and seal the bytes are in place already."""
    received, stored = storage.received_path(version.pk), storage.stored_path(version.storage_key)
    if stored.is_dir():
        return stored, None
    if received is not None and received.is_file():
        return received, storage.extraction_path(version.pk)
    return received, None


def _settle(version: DatasetVersion, outcome: validation.Outcome, folder: Path) -> None:
    report = outcome.report
    if report is None or report.summary is None or not report.ok:
        claims.version_refuse(version=version, reason=outcome.reason or _errors_of(report), report=report)
        return
    if folder != storage.stored_path(version.storage_key):
        storage.put_in_place(folder, version.storage_key)
    if claims.version_seal(version=version, report=report):
        storage.discard(version.pk)
        logger.info("dataset version %s is ready: %d episodes", version.pk, report.summary.episodes)


def _errors_of(report: ValidationReport | None) -> str:
    """Every error with its place, for people: the version's reason."""
    defects = report.defects if report else ()
    return "; ".join(f"{defect.message}{_place(defect)}" for defect in defects if defect.severity == "error")


def _place(defect: Defect) -> str:
    """`` (file data.parquet, episode 3, frame 7, feature action)``, as far as it is known."""
    known = defect.model_dump(include={"file", "episode", "frame", "feature"}, exclude_none=True)
    return f" ({', '.join(f'{name} {value}' for name, value in known.items())})" if known else ""
