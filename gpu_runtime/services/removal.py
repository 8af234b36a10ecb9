"""Deleting what jobs left behind, on request: artifacts, checkpoints of ended attempts, features of datasets."""

from concurrent.futures import Executor
from dataclasses import dataclass

from gpu_runtime.features.store import FeatureStore
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.services.errors import Conflict
from gpu_runtime.services.master import Master
from gpu_runtime.training.queue import run_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Each verb returns the bytes it freed: 0 when there was nothing, so that asking again is harmless."""

    master: Master
    artifacts: Artifacts
    checkpoints: Checkpoints
    features: FeatureStore | None  # None: nothing is kept
    files: Executor

    async def artifact(self, artifact_id: str) -> int:
        """Its file, and of an adapter its folder. Raises Conflict while an attempt that has not ended needs it."""
        user = self.master.user_of(artifact_id)
        if user is not None:
            message = f"attempt {user.attempt} of job {user.job_id!r} has not ended and needs artifact {artifact_id!r}"
            raise Conflict("artifact_in_use", message, "artifact_id")
        return await run_in(self.files, self.artifacts.remove, artifact_id)

    async def attempt_checkpoints(self, job_id: str, attempt: int) -> int:
        """All of them: an attempt that has ended is never resumed. Raises Conflict while it has not."""
        if self.master.is_live(job_id, attempt):
            raise Conflict("attempt_live", f"attempt {attempt} of job {job_id!r} has not ended", "attempt")
        return await run_in(self.files, self.checkpoints.remove, job_id, attempt)

    async def dataset_features(self, version_id: str) -> int:
        """All of a version's, and none are kept from here on. Raises Conflict while a live attempt trains on it."""
        user = self.master.trained_on(version_id)
        if user is not None:
            message = f"attempt {user.attempt} of job {user.job_id!r} has not ended and needs dataset {version_id!r}"
            raise Conflict("dataset_in_use", message, "version_id")
        return 0 if self.features is None else await run_in(self.files, self.features.forget_version, version_id)
