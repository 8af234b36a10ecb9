"""A step of supervised fine-tuning from the second epoch: every tenant alone on the plain path, against all levers.

The levers' side takes its features from the store (memory, half precision) and trains all heads in the pool; taking
them is timed although the runtime does it ahead, in other threads. The plain side is that of the first epoch: it
computes every feature again, as a tenant alone without a store does. Nothing is cached on it.
"""

from collections.abc import Iterator

from gpu_runtime.models.backbones.base import Backbone
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.grids import MAIN_CELL, TINY
from tests.benchmarks.interleaved import interleave
from tests.benchmarks.lever_sft import sides
from tests.benchmarks.sft_sides import loss_difference

FULL_TURNS = 9
NOISE_DRAWS_DEFAULT = 8  # of the platform's diffusion head: its batch is then eight times the samples


def measure(backbone: Backbone, setting: Setting) -> Iterator[Figure]:
    """``sft_step_epoch2``; on the tiny base also with heads that are most of the step."""
    for noise_draws in (1, NOISE_DRAWS_DEFAULT) if backbone.info.name == TINY else (1,):
        yield _figure(backbone, setting, noise_draws)


def _figure(backbone: Backbone, setting: Setting, noise_draws: int) -> Figure:
    repetitions = setting.turns(FULL_TURNS)
    with sides(backbone, MAIN_CELL, setting, noise_draws=noise_draws) as (plain, levers):
        times = interleave(plain.run, levers.run, repetitions=repetitions, device=setting.device)
        difference = loss_difference(plain, levers)
    return Figure(
        key="sft_step_epoch2",
        base=backbone.info.name,
        work=f"{MAIN_CELL} ragged, noise draws per sample: {noise_draws}",
        plain=times[0],
        levers=times[1],
        repetitions=repetitions,
        device=setting.device,
        details={"tenants": MAIN_CELL.tenants, "batch": MAIN_CELL.batch, "loss_difference": difference},
    )
