"""Exported adapters as the gateway serves them: a folder, and one uncompressed archive of it."""

import zipfile
from pathlib import Path
from uuid import uuid4

from gpu_runtime.models.export import Provenance, export_adapter
from gpu_runtime.models.folders import sha256
from gpu_runtime.models.probe import Probe, probe_frames, run_probe
from gpu_runtime.protocol.messages import ArtifactFile, ArtifactPublished
from gpu_runtime.store.files import sweep_unfinished, sync_folder
from gpu_runtime.workflows.sft import SftWorkflow

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: equal files make equal archives


class Artifacts:
    """``root``/<artifact id>/ and ``root``/<artifact id>.zip; both appear whole."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        sweep_unfinished(root)

    def archive(self, artifact_id: str) -> Path | None:
        """The archive of an artifact, or None."""
        if not artifact_id or Path(artifact_id).name != artifact_id or artifact_id.startswith("."):
            return None
        path = self._root / f"{artifact_id}.zip"
        return path if path.is_file() else None

    @staticmethod
    def probe(workflow: SftWorkflow) -> Probe:
        """The live policy's actions on episode 0, which ``act`` runs unless told otherwise. Uses the device."""
        plan, job = workflow.plan, workflow.job
        frames = probe_frames(plan.lengths[0])
        return run_probe(job.slot.policy, job.backbone, workflow.source, episode=0, frames=frames)

    def publish(self, workflow: SftWorkflow, provenance: Provenance, probe: Probe) -> ArtifactPublished:
        """Export the policy of a finished job. Repeating it after a crash replaces what was there."""
        job, slot = workflow.job, workflow.job.slot
        artifact_id = f"{job.job_id}-{job.attempt}-v{slot.policy_version}"
        folder = self._root / artifact_id
        manifest = export_adapter(slot, folder, backbone=job.backbone, provenance=provenance, probe=probe)
        archive = _zip(folder, self._root / f"{artifact_id}.zip")
        return ArtifactPublished(
            artifact_id=artifact_id,
            kind="adapter",
            name=workflow.spec.name,
            policy_version=slot.policy_version,
            bytes=archive.stat().st_size,
            sha256=sha256(archive),
            files=tuple(_describe(path) for path in sorted(folder.iterdir())),
            manifest=manifest.model_dump(mode="json"),
        )


def _describe(path: Path) -> ArtifactFile:
    return ArtifactFile(path=path.name, bytes=path.stat().st_size, sha256=sha256(path))


def _zip(folder: Path, destination: Path) -> Path:
    """Store the files uncompressed (weights don't shrink), in name order; ``destination`` appears whole."""
    temporary = destination.with_name(f".{destination.name}.{uuid4().hex}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(folder.iterdir()):
                entry = zipfile.ZipInfo(path.name, _EPOCH)
                with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                    while block := source.read(2**20):
                        target.write(block)
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(destination.parent)
    return destination
