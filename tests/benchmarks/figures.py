"""One figure of the bench: the same work done plainly and by the levers, and how much less the levers take."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.benchmarks.interleaved import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how thoroughly to measure. ``repetitions`` given overrides what a lever would choose."""

    device: str = "cpu"
    dtype: str = "float32"  # of the base
    quick: bool = False
    repetitions: int | None = None
    cuda_graphs: int = 0  # on CUDA, for both sides

    def turns(self, full: int, quick: int = 3) -> int:
        """Timed turns of each side."""
        return self.repetitions or (quick if self.quick else full)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table. ``key`` is the figure's name in the JSON file; ``work`` says what one turn does."""

    key: str
    base: str | None
    work: str
    plain: Timing
    levers: Timing
    repetitions: int
    device: str = "cpu"
    details: Mapping[str, Any] = field(default_factory=dict)  # written to the JSON file beside the times

    @property
    def cpu_ratio(self) -> float:
        return self.plain.cpu_ms / self.levers.cpu_ms

    @property
    def wall_ratio(self) -> float:
        return self.plain.wall_ms / self.levers.wall_ms

    @property
    def ratio(self) -> float:
        """By CPU time; on an accelerator by wall time, which waits for the device there."""
        return self.cpu_ratio if self.device == "cpu" else self.wall_ratio

    def to_json(self) -> dict[str, Any]:
        ratios = {"ratio": self.ratio, "cpu_ratio": self.cpu_ratio, "wall_ratio": self.wall_ratio}
        return asdict(self) | {"details": dict(self.details)} | ratios


def short(base: str) -> str:
    """A built-in base as the JSON file names it: ``tiny`` for ``tiny-qwen3-vl``."""
    return base.removesuffix("-qwen3-vl")
