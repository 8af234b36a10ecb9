"""Statistics as LeRobot v3.0 stores them: min, max, mean, std, count and five quantiles per feature.

Exact over every frame. Images are summarised by a histogram of their 256 levels per channel, from which all of it
follows without keeping a pixel. Shapes: N frames, D dimensions, H height, W width, C = 3 channels.
"""

import numpy as np

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
STATISTICS = ("min", "max", "mean", "std", "count", *QUANTILES)
_LEVELS = np.arange(256)

Summary = dict[str, np.ndarray]


def vector_summary(values_ND: np.ndarray) -> Summary:
    """Per-dimension statistics [D] (population std, linearly interpolated quantiles), ``count`` [1]."""
    values_ND = values_ND.reshape(len(values_ND), -1)
    exact_ND = values_ND.astype(np.float64)
    quantiles = np.quantile(exact_ND, list(QUANTILES.values()), axis=0)
    return {
        "min": values_ND.min(axis=0),
        "max": values_ND.max(axis=0),
        "mean": exact_ND.mean(axis=0),
        "std": exact_ND.std(axis=0),
        "count": np.array([len(values_ND)], np.int64),
        **dict(zip(QUANTILES, quantiles, strict=True)),
    }


class ImageHistogram:
    """How often each level occurred in each channel, and over how many frames; histograms add."""

    __slots__ = ("counts_C256", "frames")

    def __init__(self) -> None:
        self.counts_C256 = np.zeros((3, 256), np.int64)
        self.frames = 0

    def add(self, image_HWC: np.ndarray) -> None:
        """Count one uint8 image."""
        offset = image_HWC.reshape(-1, 3) + np.array([0, 256, 512])
        self.counts_C256 += np.bincount(offset.ravel(), minlength=768).reshape(3, 256)
        self.frames += 1

    def merge(self, other: "ImageHistogram") -> None:
        """Take in the frames of ``other``."""
        self.counts_C256 += other.counts_C256
        self.frames += other.frames

    def summary(self) -> Summary:
        """Statistics of levels in [0, 1], each [3, 1, 1] as LeRobot shapes them; ``count`` [1] is frames."""
        channels = [_levels_summary(counts) for counts in self.counts_C256]
        stacked = {name: np.array([channel[name] for channel in channels]).reshape(3, 1, 1) for name in channels[0]}
        return stacked | {"count": np.array([self.frames], np.int64)}


def _levels_summary(counts_256: np.ndarray) -> dict[str, float]:
    """Statistics of one channel from the counts of its levels, scaled to [0, 1]."""
    present = np.flatnonzero(counts_256)
    total = counts_256.sum()
    mean = (counts_256 * _LEVELS).sum() / total
    variance = (counts_256 * (_LEVELS - mean) ** 2).sum() / total
    values = {"min": present[0], "max": present[-1], "mean": mean, "std": np.sqrt(variance)}
    values |= {name: _level_quantile(counts_256, share) for name, share in QUANTILES.items()}
    return {name: float(value) / 255.0 for name, value in values.items()}


def _level_quantile(counts_256: np.ndarray, share: float) -> float:
    """Linearly interpolated quantile of the sorted levels, as ``np.quantile`` of all pixels would give."""
    ends = np.cumsum(counts_256)
    rank = share * (ends[-1] - 1)
    low, high = np.searchsorted(ends, [np.floor(rank), np.ceil(rank)], side="right")
    return float(low + (high - low) * (rank - np.floor(rank)))
