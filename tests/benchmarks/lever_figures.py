"""Which lever makes which figure. A lever's module is loaded when its turn comes."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec

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
        return load_backbone(
            entry, device=self.setting.device, dtype=self.setting.dtype, cuda_graphs=self.setting.cuda_graphs
        )


def _module(name: str, *wanted: str) -> Callable[[Bases], Iterator[Figure]]:
    """The lever of a module: its ``measure(backbone, setting)`` makes a figure or several, on each of ``wanted``."""

    def measured(bases: Bases) -> Iterator[Figure]:
        path = f"tests.benchmarks.{name}"
        if find_spec(path) is None:
            print(f"Not measured: there is no {path}")
            return
        measure = import_module(path).measure
        for backbone in bases.of(*wanted):
            found = measure(backbone, bases.setting)
            yield from (found,) if isinstance(found, Figure) else found

    return measured


LEVERS: dict[str, Callable[[Bases], Iterator[Figure]]] = {
    "sft_step_epoch2": _module("lever_epochs", TINY, SMALL),
    "sft_step_epoch1": _module("lever_sft", TINY, SMALL),
    "grouped_forward": _module("lever_group", TINY, SMALL),
    "ppo_handles": _module("lever_handles", SMALL),
    "lora_8x1": _module("lever_lora", TINY),
    "fused_dit_8x4": _module("lever_heads", TINY),
}
