"""One tenant's part of a device step."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Rows
from gpu_runtime.protocol.ids import PartitionId
from gpu_runtime.training.mounted import Failure, MountedJob
from gpu_runtime.training.rl.batch import RlBatch
from gpu_runtime.training.work import Work

Features = list[dict[str, Tensor]]  # per sample: tap -> [L, D]


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """What goes in, and what came of it."""

    partition_id: PartitionId
    job: MountedJob
    work: Work
    ahead: Future[Any] | None = None  # its payload, where it was read before its turn
    batch: SampleBatch | RlBatch | None = None
    inputs: list[VLAFeature] = field(default_factory=list)  # what is to go through the shared forward
    keys: list[FrameKey] = field(default_factory=list)  # of frames: names of the samples' features; none: not stored
    known: list[Rows | None] = field(default_factory=list)  # per sample: stored features, if there are
    observations: Any = None  # of chunks: which of them share features, and what was kept
    tokens: int = 0
    shared_tokens: int = 0  # its weight in the shared forward; 0 when it had no part in it
    private_ns: int = 0
    metrics: dict[str, float] = field(default_factory=dict)  # of a training step, by full name
    error: Any = None  # ActionError of an evaluation
    failure: Failure | None = None
    skipped: bool = False  # its job was stopped before its slice

    @property
    def samples(self) -> int:
        """Frames or chunks of the batch, however many of them needed a forward."""
        return 0 if self.batch is None else len(self.batch)

    @property
    def feature_hits(self) -> float | None:
        """Share of the samples that needed no forward; None where no features of frames are stored."""
        return sum(rows is not None for rows in self.known) / len(self.known) if self.known else None

    @property
    def applied(self) -> bool:
        """True when the slice did what its partition is for."""
        return self.failure is None and not self.skipped
