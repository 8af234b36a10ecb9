"""Refuses a stream of batches that the stored statistics were not computed from."""

from typing import Any

import numpy as np

from gpu_runtime.data.errors import ForeignStatistics
from gpu_runtime.data.normalize import FOREIGN_SHARE_MAX, Normalizer

SAMPLES_TO_JUDGE = 64  # a single small batch of a dataset's own frames may well have a fifth of one dimension outside


class StatisticsGuard:
    """Counts values outside the statistics over all samples seen so far; part of a slot's checkpoint."""

    def __init__(self, normalizer: Normalizer) -> None:
        self.normalizer = normalizer
        self.samples = 0
        self.values = 0
        self.outside_D = np.zeros(normalizer.dim)

    def observe(self, values_ND: np.ndarray, *, samples: int) -> float:
        """Add a batch; return the largest share outside so far.

        Raises ForeignStatistics naming the dimension; the batch is then not counted.
        """
        outside_D = self.outside_D + self.normalizer.out_of_range(values_ND) * len(values_ND)
        share_D = outside_D / (self.values + len(values_ND))
        worst = int(np.argmax(share_D))
        if self.samples + samples >= SAMPLES_TO_JUDGE and share_D[worst] > FOREIGN_SHARE_MAX:
            name = self.normalizer.names[worst]
            raise ForeignStatistics(
                "foreign_statistics",
                f"dimension {worst} ({name}): {share_D[worst]:.1%} of the values seen are outside the stored "
                f"statistics; at most {FOREIGN_SHARE_MAX:.0%} is allowed: they were computed from other data",
                feature=name,
            )
        self.samples, self.values, self.outside_D = self.samples + samples, self.values + len(values_ND), outside_D
        return float(share_D[worst])

    def to_json(self) -> dict[str, Any]:
        return {"samples": self.samples, "values": self.values, "outside": self.outside_D.tolist()}

    def restore(self, raw: dict[str, Any]) -> None:
        """Continue from ``to_json``."""
        self.samples, self.values = int(raw["samples"]), int(raw["values"])
        self.outside_D = np.asarray(raw["outside"], dtype=np.float64)
