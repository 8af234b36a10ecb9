"""A store of features for the bench's tenants, filled as the runtime fills it, and doors to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpu_runtime.data.samples import FrameRef, SampleBatch
from gpu_runtime.features.store import FeatureStore
from gpu_runtime.training.frames import FrameRows, StagingRoom
from gpu_runtime.training.work import Frames
from tests.benchmarks.sft_tenants import Tenant

ROOM_BYTES = 2**30  # in memory, and as much on disk: nothing a bench keeps is ever evicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A tenant's frames as a source of samples: what ``FrameRows`` asks of one."""

    batch: SampleBatch

    @property
    def cameras(self) -> tuple[np.ndarray, ...]:
        return self.batch.images

    def instruction(self, ref: FrameRef) -> str:
        return self.batch.instructions[ref.frame]

    def views(self, refs: Sequence[FrameRef]) -> tuple[np.ndarray, ...]:
        return tuple(view[[ref.frame for ref in refs]] for view in self.batch.images)


def open_store(folder: Path, device: str) -> FeatureStore:
    """An empty store in half precision, memory in front of files."""
    return FeatureStore(folder, ram_bytes=ROOM_BYTES, file_bytes=ROOM_BYTES, device=device)


def connect(tenants: Sequence[Tenant], store: FeatureStore) -> None:
    """Give every tenant the door to its own dataset's entries."""
    room = StagingRoom(ROOM_BYTES)
    for tenant in tenants:
        view, source = store.open(f"dataset{tenant.number}@0"), Recorded(batch=tenant.batch)
        tenant.job.frames = FrameRows(view, source, "bench", room)  # type: ignore[arg-type]


def frames_of(batch: SampleBatch, *, pictured: bool) -> Frames:
    """Where the batch comes from; with its images or, once its features are stored, without."""
    rows = tuple(range(len(batch)))
    return Frames(refs=tuple(FrameRef(0, row) for row in rows), pictured=rows if pictured else ())


def without_images(batch: SampleBatch) -> SampleBatch:
    """What the producer packs when all features could be taken ahead."""
    return SampleBatch(
        images=tuple(view[:0] for view in batch.images),
        instructions=batch.instructions,
        state_BS=batch.state_BS,
        actions_BHA=batch.actions_BHA,
        mask_BH=batch.mask_BH,
    )
