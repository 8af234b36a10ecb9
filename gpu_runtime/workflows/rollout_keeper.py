"""What becomes of a rollout job's episodes: rows while they are played, a file when they end, progress as they add up.

Shapes: A action dimensions.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_runtime.environments.results import ChunkResult, Observation
from gpu_runtime.protocol.messages import MetricsRecorded
from gpu_runtime.workflows.actor import PredictStatistics
from gpu_runtime.workflows.playing import Playing, Try
from gpu_runtime.workflows.ports import Teller
from gpu_runtime.workflows.rollout_shelf import EpisodeShelf, RolloutEpisode, Rows, chosen

Durable = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking write until the disk takes it."""


@dataclass(slots=True, kw_only=True)
class RolloutKeeper:
    """``wanted`` episodes make the dataset; with ``only_successes`` the others are played, paid and not kept."""

    shelf: EpisodeShelf
    wanted: int
    only_successes: bool
    durable: Durable
    tell: Teller
    predictions: PredictStatistics
    _records: dict[int, RolloutEpisode] = field(init=False, default_factory=dict)
    _rows: dict[int, Rows] = field(init=False, default_factory=dict)  # of episodes in progress

    async def begin(self) -> bool:
        """True when an earlier process began; what it finished is known then."""
        resumed: bool = await self.durable(self.shelf.begin)
        self._records = {record.index: record for record in await self.durable(self.shelf.records)}
        return resumed

    def knows(self, index: int) -> bool:
        """Whether this planned episode was played, or was solved before it began."""
        return index in self._records

    @property
    def attempts(self) -> int:
        """Episodes that were begun."""
        return len(self._records)

    @property
    def successes(self) -> int:
        return sum(record.success_once for record in self._records.values())

    def chosen(self) -> Sequence[RolloutEpisode]:
        """What the dataset is made of, so far."""
        return chosen(tuple(self._records.values()), self.wanted)

    def moved(self, playing: Playing, before: Observation, actions_1A: np.ndarray, result: ChunkResult) -> None:
        """One step was executed."""
        self._rows.setdefault(playing.planned.index, Rows()).add(before, actions_1A[0])

    def lost(self, planned: Try) -> None:
        """It will be played again."""
        self._rows.pop(planned.index, None)

    async def ended(self, playing: Playing) -> None:
        """Its file is on disk afterwards, and its part of the progress is told."""
        assert playing.last is not None, "it has ended"
        planned, last = playing.planned, playing.last
        record = RolloutEpisode(
            index=planned.index,
            seed=planned.seed,
            kept=last.success_once or not self.only_successes,
            success_once=last.success_once,
            success_at_end=last.success,
            steps=playing.steps,
            env_return=round(float(sum(sum(taken.raw) for taken in playing.taken)), 6),
            instruction=playing.start.observation.instruction,
            initial_state=playing.start.initial_state,
        )
        await self._put(record, self._rows.pop(planned.index))
        if record.kept:
            await self.tell(MetricsRecorded(step=len(self.chosen()), values=self._progress()))

    async def solved(self, tries: Sequence[Try]) -> None:
        """Nothing was to be done there: no episode of the dataset."""
        for planned in tries:
            await self._put(
                RolloutEpisode(index=planned.index, seed=planned.seed, kept=False, solved_at_reset=True), None
            )

    async def _put(self, record: RolloutEpisode, rows: Rows | None) -> None:
        await self.durable(lambda: self.shelf.put(record, rows))
        self._records[record.index] = record

    def _progress(self) -> dict[str, float]:
        """Over everything played so far."""
        played = [record for record in self._records.values() if not record.solved_at_reset]
        means = {
            "return": [record.env_return for record in played],
            "success_once": [float(record.success_once) for record in played],
            "success_at_end": [float(record.success_at_end) for record in played],
            "episode_steps": [float(record.steps) for record in played],
        }
        counts = {
            "episodes": len(played),
            "env_steps": sum(record.steps for record in played),
            "solved_at_reset": self.attempts - len(played),
            "distinct_starts": len({record.initial_state for record in played}),
        }
        values = {name: float(np.mean(column)) for name, column in means.items()} | counts
        return {f"rollout/{name}": float(value) for name, value in values.items()} | self.predictions.metrics()
