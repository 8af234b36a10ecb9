"""What one batch of kept features costs: from memory, from a file, and computed again.

Files are read through the page cache, which is warm here: not the time of a cold disk.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gpu_runtime.features.keys import FrameKey
from gpu_runtime.features.rows import Entry, Rows
from gpu_runtime.features.store import DatasetFeatures, FeatureStore
from gpu_runtime.models.backbones.base import Backbone
from tests.benchmarks.bench_group import TAPS, make_samples
from tests.benchmarks.figures import Setting
from tests.benchmarks.interleaved import Timing, interleave
from tests.benchmarks.sft_tenants import IMAGE_SIZE

DATASET = "bench@0"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTimes:
    """Medians of one batch."""

    base: str
    samples: int
    sample_bytes: int  # stored, on average
    compute: Timing
    ram: Timing
    file: Timing
    repetitions: int


def measure(backbone: Backbone, setting: Setting, *, samples: int = 32) -> StoreTimes:
    """One batch of samples taken from memory, by ``preadv``, and through the backbone; in turns."""
    inputs = make_samples(np.random.default_rng(0), samples, ragged=True, size=IMAGE_SIZE)

    def compute() -> list[Rows]:
        return list(backbone.encode(inputs, [TAPS] * samples))

    keys = [FrameKey(dataset=DATASET, episode=0, frame=i, prefix="bench", instruction="") for i in range(samples)]
    computed = compute()
    room = sum(Entry.of(rows, torch.float16)[0].size for rows in computed)
    repetitions = setting.turns(7)
    with tempfile.TemporaryDirectory() as folder:
        in_memory = FeatureStore(None, ram_bytes=room, file_bytes=0, device=setting.device)
        in_file = FeatureStore(Path(folder), ram_bytes=0, file_bytes=16 * room, device=setting.device)
        ram, file = (_filled(store, keys, computed) for store in (in_memory, in_file))
        ram_time, compute_time = interleave(
            lambda: ram.take(keys), compute, repetitions=repetitions, device=setting.device
        )
        _, file_time = interleave(
            lambda: ram.take(keys), lambda: file.take(keys), repetitions=repetitions, device=setting.device
        )
        misses = in_memory.status().misses + in_file.status().misses
        in_file.close()
    if misses:
        raise RuntimeError(f"misses: {misses}, allowed: 0")
    return StoreTimes(
        base=backbone.info.name,
        samples=samples,
        sample_bytes=room // samples,
        compute=compute_time,
        ram=ram_time,
        file=file_time,
        repetitions=repetitions,
    )


def _filled(store: FeatureStore, keys: Sequence[FrameKey], computed: Sequence[Rows]) -> DatasetFeatures:
    view = store.open(DATASET)
    for key, rows in zip(keys, computed, strict=True):
        view.put(key, rows)
    return view
