"""What workloads are built from: every service and store of this process, by name."""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.seat_desk import SeatDesk
from gpu_runtime.features.store import FeatureStore
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.services.config import RuntimeConfig
from gpu_runtime.services.datasets import DatasetVerifier
from gpu_runtime.services.publishing import Publisher
from gpu_runtime.services.training import TrainingService
from gpu_runtime.store.durability import Durability
from gpu_runtime.training.frames import StagingRoom
from gpu_runtime.training.queue import SharedQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeParts:
    """``readers`` decodes datasets, ``files`` writes artifacts. ``rollouts`` bounds how many are in production."""

    config: RuntimeConfig
    bases: Mapping[str, Backbone]
    durability: Durability
    artifacts: Artifacts
    checkpoints: Checkpoints
    verifier: DatasetVerifier
    publisher: Publisher
    queue: SharedQueue
    training: TrainingService
    inference: InferenceService
    features: FeatureStore | None
    staging: StagingRoom
    pool: EnvironmentPool
    rollouts: SeatDesk
    readers: Executor
    files: Executor
