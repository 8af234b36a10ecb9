"""Which frames make a batch: a pure function of the seed and the step, so a resumed job needs its step only."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_SPLIT_STREAM, _EPOCH_STREAM = 1, 2  # independent random streams of one seed


@dataclass(frozen=True, slots=True, order=True)
class FrameRef:
    """One frame: position of its episode in the dataset, and frame within the episode. Both count from 0."""

    episode: int
    frame: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Episode positions to train on and to keep for evaluation; disjoint, ascending."""

    train: tuple[int, ...]
    holdout: tuple[int, ...]


def split_episodes(count: int, holdout_fraction: float, seed: int) -> Split:
    """Keep about ``holdout_fraction`` of the episodes for evaluation, chosen by ``seed``.

    At least one episode on each side; with a single episode, or a fraction of exactly 0, nothing is held out.
    """
    if count < 1:
        raise ValueError(f"count is {count}; at least 1 episode is needed")
    if not 0 <= holdout_fraction < 1:
        raise ValueError(f"holdout_fraction is {holdout_fraction}; allowed: 0 <= fraction < 1")
    held = min(max(round(count * holdout_fraction), 1), count - 1) if holdout_fraction > 0 else 0
    order = np.random.default_rng([seed, _SPLIT_STREAM]).permutation(count).tolist()
    return Split(train=tuple(sorted(order[held:])), holdout=tuple(sorted(order[:held])))


class FrameSampler:
    """Endless epochs over the frames of ``episodes``, each frame once per epoch in an order drawn for that epoch."""

    def __init__(self, lengths: Sequence[int], episodes: Sequence[int], batch_size: int, seed: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; at least 1 is needed")
        self.episodes = tuple(episodes)
        self.batch_size = batch_size
        self.seed = seed
        self._starts = np.cumsum([0, *(lengths[episode] for episode in self.episodes)])
        if self.frame_count == 0:
            raise ValueError(f"episodes {list(self.episodes)} have no frames to sample")
        # Two epochs: a batch may straddle their border.
        self._order = lru_cache(maxsize=2)(self._draw_order)

    @property
    def frame_count(self) -> int:
        return int(self._starts[-1])

    def batch(self, step: int) -> list[FrameRef]:
        """The ``batch_size`` frames of optimizer step ``step`` (from 0)."""
        if step < 0:
            raise ValueError(f"step is {step}; it must not be negative")
        first = step * self.batch_size
        return [self._draw(index) for index in range(first, first + self.batch_size)]

    def _draw(self, index: int) -> FrameRef:
        epoch, place = divmod(index, self.frame_count)
        frame = int(self._order(epoch)[place])
        slot = int(np.searchsorted(self._starts, frame, side="right")) - 1
        return FrameRef(self.episodes[slot], frame - int(self._starts[slot]))

    def _draw_order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, _EPOCH_STREAM, epoch]).permutation(self.frame_count)
