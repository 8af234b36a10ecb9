"""How much grouping tenants saves: the frozen forward only, tenant by tenant against all tenants at once.

Both sides run the same packed kernels with the same token limit, so the ratio is what grouping itself brings; the
tenants' heads, losses and optimizers are not in it. Run ``python -m tests.benchmarks.bench_group``
(``make bench BENCH=bench_group``).
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import DEFAULT_TOKENS_PER_FORWARD, load_backbone
from gpu_runtime.protocol.catalog import BUILT_IN_BASES, BaseModelEntry
from tests.benchmarks.interleaved import interleave

TAPS = frozenset({"layer:-1"})
TENANTS, BATCHES = (2, 4, 8, 16), (1, 2, 4, 8)
QUICK_TENANTS, QUICK_BATCHES = (2, 8), (1, 4)
INSTRUCTION_BYTES = 18  # of an equal sample: 75 prompt tokens with one 192-pixel view
RAGGED_BYTES = (8, 42)
RAGGED_VIEWS = (1, 3)
REPETITIONS_MAX, REPETITIONS_MIN = 9, 3
SAMPLES_TIMED = 64  # fewer repetitions for bigger groups, so that every cell sees about as many samples
HEADER = (
    f"{'base':<15}{'lengths':<8}{'tenants':>8}{'batch':>6}{'tokens':>8}"
    f"{'serial':>10}{'grouped':>10}{'ratio':>7}{'serial':>10}{'grouped':>10}{'ratio':>7}{'reps':>5}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One line of the table."""

    base: str
    lengths: str
    tenants: int
    batch: int
    tokens: int
    repetitions: int
    serial_cpu_ms: float
    grouped_cpu_ms: float
    serial_wall_ms: float
    grouped_wall_ms: float

    @property
    def cpu_ratio(self) -> float:
        return self.serial_cpu_ms / self.grouped_cpu_ms

    @property
    def wall_ratio(self) -> float:
        return self.serial_wall_ms / self.grouped_wall_ms

    def line(self) -> str:
        return (
            f"{self.base:<15}{self.lengths:<8}{self.tenants:>8}{self.batch:>6}{self.tokens:>8}"
            f"{self.serial_cpu_ms:>10.1f}{self.grouped_cpu_ms:>10.1f}"
            f"{self.cpu_ratio:>7.2f}{self.serial_wall_ms:>10.1f}{self.grouped_wall_ms:>10.1f}"
            f"{self.wall_ratio:>7.2f}{self.repetitions:>5}"
        )


def make_samples(rng: np.random.Generator, count: int, *, ragged: bool, size: int) -> list[VLAFeature]:
    """Equal: one view, one length. Ragged: one to three views, instructions of different lengths."""
    samples = []
    for _ in range(count):
        views = int(rng.integers(RAGGED_VIEWS[0], RAGGED_VIEWS[1] + 1)) if ragged else 1
        text = int(rng.integers(*RAGGED_BYTES)) if ragged else INSTRUCTION_BYTES
        images = tuple(rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for _ in range(views))
        samples.append(VLAFeature(images=images, instruction="x" * text))
    return samples


def measure(
    backbone: Backbone,
    *,
    tenants: int,
    batch: int,
    ragged: bool,
    size: int,
    repetitions: int | None = None,
    device: str = "cpu",
) -> Cell:
    """Serial and grouped forwards of the same samples; ``repetitions`` None: by the size of the group."""
    rng = np.random.default_rng([tenants, batch, ragged])
    per_tenant = [make_samples(rng, batch, ragged=ragged, size=size) for _ in range(tenants)]
    together = [sample for samples in per_tenant for sample in samples]

    def serial() -> None:
        for samples in per_tenant:
            backbone.encode(samples, [TAPS] * batch)

    def grouped() -> None:
        backbone.encode(together, [TAPS] * len(together))

    repetitions = repetitions or min(REPETITIONS_MAX, max(REPETITIONS_MIN, SAMPLES_TIMED // len(together)))
    serial_timing, grouped_timing = interleave(serial, grouped, repetitions=repetitions, device=device)
    return Cell(
        base=backbone.info.name,
        lengths="ragged" if ragged else "equal",
        tenants=tenants,
        batch=batch,
        tokens=sum(backbone.tokens(sample) for sample in together),
        repetitions=repetitions,
        serial_cpu_ms=serial_timing.cpu_ms,
        grouped_cpu_ms=grouped_timing.cpu_ms,
        serial_wall_ms=serial_timing.wall_ms,
        grouped_wall_ms=grouped_timing.wall_ms,
    )


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Every cell of the table, base by base."""
    tenants, batches = (QUICK_TENANTS, QUICK_BATCHES) if options.quick else (TENANTS, BATCHES)
    for name in options.bases:
        backbone = load_backbone(
            BaseModelEntry(name=name, source=name),
            device=options.device,
            dtype=options.dtype,
            max_tokens_per_forward=options.max_tokens,
        )
        for ragged in (False, True):
            for count in tenants:
                for batch in batches:
                    yield measure(
                        backbone,
                        tenants=count,
                        batch=batch,
                        ragged=ragged,
                        size=options.image_size,
                        device=options.device,
                    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny base and a few cells only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the cells there as well")
    parser.add_argument("--bases", nargs="+", choices=sorted(BUILT_IN_BASES), default=None)
    parser.add_argument("--image-size", type=int, default=192, help="pixels per side, a multiple of 32")
    parser.add_argument("--max-tokens", type=int, default=DEFAULT_TOKENS_PER_FORWARD, help="per forward, both sides")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of one operation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    everything = ["tiny-qwen3-vl"] if options.quick else ["tiny-qwen3-vl", "small-qwen3-vl"]
    options.bases = options.bases or everything
    return options


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    machine = {
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "load_average_1min": os.getloadavg()[0],
    }
    settings = {name: getattr(options, name) for name in ("image_size", "max_tokens", "threads", "device", "dtype")}
    print(f"Frozen forward only, random weights. {machine | settings}")
    print(f"{'':<45}{'CPU ms, whole group':>27}{'wall ms, whole group':>27}\n{HEADER}")
    table = []
    for cell in cells(options):
        print(cell.line(), flush=True)
        table.append(asdict(cell) | {"cpu_ratio": cell.cpu_ratio, "wall_ratio": cell.wall_ratio})
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "settings": settings, "cells": table}, indent=2))


if __name__ == "__main__":
    main()
