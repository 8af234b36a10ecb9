"""What jobs publish, as the gateway serves it: one file each; of an adapter, a folder and its uncompressed archive."""

import os
import re
import shutil
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

from gpu_runtime.models.export import Provenance, export_adapter
from gpu_runtime.models.folders import listing, sha256
from gpu_runtime.models.probe import Probe
from gpu_runtime.protocol.messages import ArtifactFile, ArtifactPublished
from gpu_runtime.store.files import remove, sweep_unfinished, sync_folder, write_atomic
from gpu_runtime.training.mounted import MountedJob

MEDIA_TYPES: Mapping[str, str] = {
    ".zip": "application/zip",
    ".mp4": "video/mp4",
    ".json": "application/json",
}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: equal files make equal archives


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFacts:
    """What is said of an artifact besides its bytes."""

    artifact_id: str
    kind: Literal["evaluation", "video", "dataset"]
    name: str
    policy_version: int
    manifest: dict[str, object]


class Artifacts:
    """``root``/<artifact id>.<zip, mp4 or json>, and ``root``/<artifact id>/ of an adapter; all appear whole.

    Every method blocks on the disk. Publishing again after a crash replaces what was there.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        sweep_unfinished(root)

    def file(self, artifact_id: str) -> Path | None:
        """What the gateway serves for an artifact, or None; ``MEDIA_TYPES`` says what it is."""
        if not _is_name(artifact_id):
            return None
        paths = (self._root / f"{artifact_id}{suffix}" for suffix in MEDIA_TYPES)
        return next((path for path in paths if path.is_file()), None)

    def archive(self, artifact_id: str) -> Path | None:
        """The archive of an artifact, or None."""
        path = self.file(artifact_id)
        return path if path is not None and path.suffix == ".zip" else None

    def folder(self, artifact_id: str) -> Path:
        """Where an adapter's files lie, if there is such an adapter. Raises ValueError for what is no name."""
        if not _is_name(artifact_id):
            raise ValueError(f"artifact_id {artifact_id!r} is no name")
        return self._root / artifact_id

    def remove(self, artifact_id: str) -> int:
        """Remove an artifact's file, then its folder; returns their bytes, 0 if there is none. Raises OSError.

        What was removed by half is not served any more; the rest goes when this is called again.
        """
        if not _is_name(artifact_id):
            return 0
        paths = [self._root / f"{artifact_id}{suffix}" for suffix in MEDIA_TYPES]
        return sum(remove(path) for path in [*paths, self._root / artifact_id])

    def publish_file(self, source: Path, facts: ArtifactFacts) -> ArtifactPublished:
        """Take over a file of one of the ``MEDIA_TYPES``, which lies on the same file system. Raises OSError."""
        destination = self._root / f"{facts.artifact_id}{source.suffix}"
        if source.is_file():  # else it was taken over by a try that could not say so
            with source.open("rb") as file:
                os.fsync(file.fileno())
            source.replace(destination)
            sync_folder(self._root)
        return _published(destination, facts)

    def publish_bytes(self, data: bytes, suffix: str, facts: ArtifactFacts) -> ArtifactPublished:
        """Publish what is in memory. Raises OSError."""
        destination = self._root / f"{facts.artifact_id}{suffix}"
        write_atomic(destination, data)
        return _published(destination, facts)

    def publish_folder(self, source: Path, facts: ArtifactFacts) -> ArtifactPublished:
        """Archive a folder as it is, subfolders included; ``source`` stays. Raises OSError."""
        return _published(_zip(source, self._root / f"{facts.artifact_id}.zip"), facts)

    def forget_untold(self, job_id: str, attempt: int, told: Collection[str]) -> None:
        """Remove what an attempt that has ended made and nobody will ever ask for, e.g. a film that a crash left
        behind before its episode was written down."""
        own = re.compile(re.escape(f"{job_id}-{attempt}-") + r"(v\d+|evaluation|dataset|video-.+)")
        for path in list(self._root.iterdir()):
            artifact_id = path.stem if path.suffix in MEDIA_TYPES else path.name
            if artifact_id in told or not own.fullmatch(artifact_id):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def publish_adapter(self, job: MountedJob, name: str, provenance: Provenance, probe: Probe) -> ArtifactPublished:
        """Export the policy of a finished job."""
        slot = job.slot
        artifact_id = f"{job.job_id}-{job.attempt}-v{slot.policy_version}"
        folder = self._root / artifact_id
        manifest = export_adapter(slot, folder, backbone=job.backbone, provenance=provenance, probe=probe)
        archive = _zip(folder, self._root / f"{artifact_id}.zip")
        return ArtifactPublished(
            artifact_id=artifact_id,
            kind="adapter",
            name=name,
            policy_version=slot.policy_version,
            bytes=archive.stat().st_size,
            sha256=sha256(archive),
            files=tuple(ArtifactFile.model_validate(entry) for entry in listing(folder)),
            manifest=manifest.model_dump(mode="json"),
        )


def _describe(path: Path) -> ArtifactFile:
    return ArtifactFile(path=path.name, bytes=path.stat().st_size, sha256=sha256(path))


def _is_name(artifact_id: str) -> bool:
    return bool(artifact_id) and Path(artifact_id).name == artifact_id and not artifact_id.startswith(".")


def _published(path: Path, facts: ArtifactFacts) -> ArtifactPublished:
    file = _describe(path)
    return ArtifactPublished(
        artifact_id=facts.artifact_id,
        kind=facts.kind,
        media_type=MEDIA_TYPES[path.suffix],
        name=facts.name,
        policy_version=facts.policy_version,
        bytes=file.bytes,
        sha256=file.sha256,
        files=(file,),
        manifest=facts.manifest,
    )


def _zip(folder: Path, destination: Path) -> Path:
    """Store the files uncompressed (weights and films don't shrink), in name order; ``destination`` appears whole."""
    temporary = destination.with_name(f".{destination.name}.{uuid4().hex}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
                with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                    while block := source.read(2**20):
                        target.write(block)
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(destination.parent)
    return destination
