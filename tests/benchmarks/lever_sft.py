"""A step of supervised fine-tuning in the first epoch: every tenant alone on the plain path, against all in one step.

The levers in it are the packed group and the head pool, and every feature is written to the store, in memory and to
its files. Timed on both sides: opening the partitions on disk, the forwards, the heads' losses, gradients and updates.
Not timed on either side: decoding frames and writing partitions, which the runtime does ahead in other threads, and
the pool's first steps, in which it compares its two ways. Both sides run the same packed kernels.
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
from tests.benchmarks.sft_sides import Levers, Plain, loss_difference
from tests.benchmarks.sft_tenants import make_tenants

SAMPLES_TIMED = 400


def measure(backbone: Backbone, setting: Setting) -> Iterator[Figure]:
    """First epoch, no frame was seen before: one figure for each cell of the grid."""
    for cell in grid(backbone.info.name, quick=setting.quick):
        with sides(backbone, cell, setting) as (plain, levers):
            repetitions = setting.repetitions or turns(cell, samples=SAMPLES_TIMED, least=5, most=25)
            times = interleave(
                plain.run,
                levers.run,
                repetitions=repetitions,
                device=setting.device,
                before_first=plain.pack,
                before_second=levers.forget,
            )
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
def sides(backbone: Backbone, cell: Cell, setting: Setting, *, noise_draws: int = 1) -> Iterator[tuple[Plain, Levers]]:
    """The same tenants twice; the levers have settled."""
    with tempfile.TemporaryDirectory(prefix="bench-sft-") as folder:
        tenants = (
            make_tenants(backbone, tenants=cell.tenants, batch=cell.batch, noise_draws=noise_draws) for _ in range(2)
        )
        plain = Plain(Path(folder, "plain"), next(tenants), device=setting.device)
        levers = Levers(Path(folder, "levers"), next(tenants), device=setting.device)
        levers.remember()
        for _ in range(COMPARED_STEPS):  # untimed: the head pool runs both ways
            levers.run()
        yield plain, levers
        levers.close()
