"""Grouping alone: the frozen forward of all tenants at once against one each, with nothing known beforehand."""

from collections.abc import Iterator

from gpu_runtime.models.backbones.base import Backbone
from tests.benchmarks import bench_group
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.grids import grid
from tests.benchmarks.interleaved import Timing
from tests.benchmarks.sft_tenants import IMAGE_SIZE


def measure(backbone: Backbone, setting: Setting) -> Iterator[Figure]:
    """One figure for each cell and kind of lengths; heads and optimizers are not in it."""
    for ragged in (False, True):
        for cell in grid(backbone.info.name, quick=setting.quick):
            yield _figure(
                bench_group.measure(
                    backbone,
                    tenants=cell.tenants,
                    batch=cell.batch,
                    ragged=ragged,
                    size=IMAGE_SIZE,
                    repetitions=setting.repetitions,
                    device=setting.device,
                ),
                setting,
            )


def _figure(cell: bench_group.Cell, setting: Setting) -> Figure:
    return Figure(
        key="grouped_forward",
        base=cell.base,
        work=f"{cell.tenants}x{cell.batch} {cell.lengths}",
        plain=Timing(cpu_ms=cell.serial_cpu_ms, wall_ms=cell.serial_wall_ms),
        levers=Timing(cpu_ms=cell.grouped_cpu_ms, wall_ms=cell.grouped_wall_ms),
        repetitions=cell.repetitions,
        device=setting.device,
        details={
            "tenants": cell.tenants,
            "batch": cell.batch,
            "ragged": cell.lengths == "ragged",
            "tokens": cell.tokens,
        },
    )
