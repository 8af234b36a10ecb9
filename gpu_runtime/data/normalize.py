"""Normalisation by stored statistics only: one function for training, rollout and serving.

Shapes: [..., D] raw or model units, float32.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np

from gpu_runtime.data.errors import ForeignStatistics
from gpu_runtime.protocol.schema import VectorStatistics

RANGE_MIN = 1e-4
RANGE_MIN_RELATIVE = 1e-3  # of the median range
FOREIGN_SHARE_MAX = 0.2  # about 2 % of a dataset's own values lie outside its q01..q99


class NormalizationMode(StrEnum):
    """Which statistics map a value to model units."""

    QUANTILE = "quantile"  # q01..q99 -> [-1, 1]
    MEAN_STD = "mean_std"  # z-score
    MIN_MAX = "min_max"  # min..max -> [-1, 1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Normalizer:
    """``normalize(x) = (x - center) / scale``; a degenerate dimension is 0, and its inverse is the constant.

    Values outside the statistics are not clipped, so ``denormalize(normalize(x))`` is ``x``.
    """

    mode: NormalizationMode
    names: tuple[str, ...]
    statistics: VectorStatistics
    center_D: np.ndarray
    scale_D: np.ndarray
    degenerate_D: np.ndarray  # bool

    @classmethod
    def from_statistics(
        cls, statistics: VectorStatistics, mode: NormalizationMode | str, names: Sequence[str]
    ) -> Self:
        """Raises ValueError naming the dimension for missing, non-finite or impossible statistics."""
        mode = NormalizationMode(mode)
        values = _checked(statistics, names)
        if mode is NormalizationMode.MEAN_STD:
            low, high = values["min"], values["max"]
            scale = np.maximum(values["std"], _least(values["std"]))
            center = values["mean"]
        else:
            limits = ("q01", "q99") if mode is NormalizationMode.QUANTILE else ("min", "max")
            low, high = values[limits[0]], values[limits[1]]
            center, scale = (low + high) / 2, (high - low) / 2
        degenerate = high - low < _least(high - low)
        return cls(
            mode=mode,
            names=tuple(names),
            statistics=statistics,
            center_D=center.astype(np.float32),
            scale_D=np.where(degenerate, 1.0, scale).astype(np.float32),
            degenerate_D=degenerate,
        )

    @property
    def dim(self) -> int:
        return len(self.names)

    def normalize(self, x: np.ndarray) -> np.ndarray:
        """Raw units to model units, float32."""
        x = self._sized(x)
        return np.where(self.degenerate_D, np.float32(0), (x - self.center_D) / self.scale_D)

    def denormalize(self, x: np.ndarray) -> np.ndarray:
        """Model units to raw units, float32."""
        x = self._sized(x)
        return np.where(self.degenerate_D, self.center_D, x * self.scale_D + self.center_D)

    def out_of_range(self, x: np.ndarray) -> np.ndarray:
        """Share of the values of each dimension outside q01..q99 (min..max for that mode), float64 [D].

        A dimension whose range is too small to scale by counts as outside where it leaves that least range.
        """
        by_limits = self.mode is NormalizationMode.MIN_MAX
        low = np.asarray(self.statistics.min if by_limits else self.statistics.q01)
        high = np.asarray(self.statistics.max if by_limits else self.statistics.q99)
        half = np.maximum(high - low, _least(high - low)) / 2
        values = self._sized(x).reshape(-1, self.dim)
        # Float32 data lies up to one rounding outside float64 statistics of itself.
        slack = 1e-6 * (half + np.abs(low + high))
        return (~(np.abs(values - (low + high) / 2) <= half + slack)).mean(axis=0, dtype=np.float64)

    def check_own(self, x: np.ndarray) -> None:
        """Refuse statistics of another dataset: more than 20 % of a dimension's values outside them."""
        share = self.out_of_range(x)
        worst = int(np.argmax(share))
        if share[worst] > FOREIGN_SHARE_MAX:
            raise ForeignStatistics(
                "foreign_statistics",
                f"dimension {worst} ({self.names[worst]}): {share[worst]:.1%} of the values are outside the stored "
                f"statistics; at most {FOREIGN_SHARE_MAX:.0%} is allowed: they were computed from other data",
                feature=self.names[worst],
            )

    def to_json(self) -> dict[str, Any]:
        """Everything ``from_json`` needs: the statistics are the source, the scales follow from them."""
        return {
            "mode": str(self.mode),
            "names": list(self.names),
            "statistics": self.statistics.model_dump(mode="json"),
            "degenerate": self.degenerate_D.tolist(),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Inverse of ``to_json``; raises ValueError when the flags do not follow from the statistics."""
        normalizer = cls.from_statistics(
            VectorStatistics.model_validate(raw["statistics"]), raw["mode"], tuple(raw["names"])
        )
        if list(raw["degenerate"]) != normalizer.degenerate_D.tolist():
            raise ValueError(
                f"degenerate is {raw['degenerate']}; the statistics say {normalizer.degenerate_D.tolist()}"
            )
        return normalizer

    def _sized(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, np.float32)
        if x.shape[-1:] != (self.dim,):
            raise ValueError(
                f"values of shape {x.shape}; the last dimension must be {self.dim}: {', '.join(self.names)}"
            )
        return x


def _least(range_D: np.ndarray) -> float:
    """Below this range a dimension is a constant with noise: scaling by it would make the noise thousands."""
    return max(RANGE_MIN, RANGE_MIN_RELATIVE * float(np.median(range_D)))


def _checked(statistics: VectorStatistics, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The statistics as float64 [D] arrays; every list complete, finite and possible."""
    values = {}
    for name in ("mean", "std", "min", "max", "q01", "q99"):
        array = np.asarray(getattr(statistics, name), np.float64)
        if array.shape != (len(names),) or not names:
            raise ValueError(f"statistics.{name} has {array.size} values for {len(names)} dimensions")
        if not np.isfinite(array).all():
            worst = int(np.flatnonzero(~np.isfinite(array))[0])
            raise ValueError(f"statistics.{name}[{worst}] ({names[worst]}) is {array[worst]}; it must be finite")
        values[name] = array
    for low, high in (("min", "max"), ("q01", "q99")):
        if (wrong := np.flatnonzero(values[low] > values[high])).size:
            raise ValueError(f"statistics.{low} > statistics.{high} for dimension {wrong[0]} ({names[wrong[0]]})")
    if (wrong := np.flatnonzero(values["std"] < 0)).size:
        raise ValueError(f"statistics.std[{wrong[0]}] ({names[wrong[0]]}) is negative")
    return values
