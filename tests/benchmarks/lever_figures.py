"""Which lever makes which figure. A lever's module is loaded when its turn comes."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from tests.benchmarks.figures import Figure, Setting
from tests.benchmarks.grids import SMALL, TINY


class Bases:
    """The bases asked for, each loaded once."""

    def __init__(self, setting: Setting, names: Sequence[str]) -> None:
        self.setting, self.names = setting, tuple(names)
        self.load = cache(self._load)

    def of(self, *wanted: str) -> Iterator[Backbone]:
        """Those of ``wanted`` that were asked for."""
        return (self.load(name) for name in wanted if name in self.names)

    def _load(self, name: str) -> Backbone:
        entry = BaseModelEntry(name=name, source=name)
        return load_backbone(entry, device=self.setting.device, dtype=self.setting.dtype)


def _sft_epoch2(bases: Bases) -> Iterator[Figure]:
    from tests.benchmarks.lever_sft import later_epochs

    for backbone in bases.of(TINY, SMALL):
        yield from later_epochs(backbone, bases.setting)


def _sft_epoch1(bases: Bases) -> Iterator[Figure]:
    from tests.benchmarks.lever_sft import first_epoch

    for backbone in bases.of(TINY, SMALL):
        yield from first_epoch(backbone, bases.setting)


def _grouped(bases: Bases) -> Iterator[Figure]:
    from tests.benchmarks.lever_group import measure

    for backbone in bases.of(TINY, SMALL):
        yield from measure(backbone, bases.setting)


def _module(name: str, base: str) -> Callable[[Bases], Iterator[Figure]]:
    """The lever of a module: ``measure(backbone, setting) -> Figure``."""

    def measured(bases: Bases) -> Iterator[Figure]:
        measure = import_module(f"tests.benchmarks.{name}").measure
        for backbone in bases.of(base):
            yield measure(backbone, bases.setting)

    return measured


LEVERS: dict[str, Callable[[Bases], Iterator[Figure]]] = {
    "sft_step_epoch2": _sft_epoch2,
    "sft_step_epoch1": _sft_epoch1,
    "grouped_forward": _grouped,
    "ppo_handles": _module("lever_handles", SMALL),
    "lora_8x1": _module("lever_lora", TINY),
    "fused_dit_8x4": _module("lever_heads", TINY),
}
