"""A step of supervised fine-tuning: every tenant alone on the plain path, against one device step of all.

The levers in it are the packed group and the head pool; no features are stored on either side. Timed on both sides:
opening the partitions on disk, the forwards, the heads' losses, gradients and updates. Not timed on either side:
decoding frames and writing partitions, which the runtime does ahead in other threads, and the pool's first steps, in
which it compares its two ways. Both sides run the same packed kernels.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.training.pool_judge import COMPARED_STEPS
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.grids import Cell, grid, turns
from tests.benchmarks.interleaved import interleave
from tests.benchmarks.sft_sides import Side, loss_difference
from tests.benchmarks.sft_tenants import make_tenants

SAMPLES_TIMED = 96


def measure(backbone: Backbone, setting: Setting) -> Iterator[Figure]:
    """First epoch, no frame was seen before: one figure for each cell of the grid."""
    for cell in grid(backbone.info.name, quick=setting.quick):
        with _sides(backbone, cell, setting) as (plain, levers):
            repetitions = setting.repetitions or turns(cell, samples=SAMPLES_TIMED, least=5, most=15)
            times = interleave(plain.apart, levers.together, repetitions=repetitions, device=setting.device)
            difference = loss_difference(plain, levers)
        yield Figure(
            key="sft_step_epoch1",
            base=backbone.info.name,
            work=f"{cell} ragged",
            plain=times[0],
            levers=times[1],
            repetitions=repetitions,
            device=setting.device,
            details={"tenants": cell.tenants, "batch": cell.batch, "loss_difference": difference},
        )


@contextmanager
def _sides(backbone: Backbone, cell: Cell, setting: Setting) -> Iterator[tuple[Side, Side]]:
    """The same tenants twice; the levers have settled."""
    with tempfile.TemporaryDirectory(prefix="bench-sft-") as folder:
        plain, levers = (
            Side(
                Path(folder, name),
                make_tenants(backbone, tenants=cell.tenants, batch=cell.batch),
                device=setting.device,
                levers=name == "levers",
            )
            for name in ("plain", "levers")
        )
        for _ in range(COMPARED_STEPS):  # untimed: the head pool runs both ways
            levers.together()
        yield plain, levers
