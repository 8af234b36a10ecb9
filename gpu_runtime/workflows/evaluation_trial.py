"""One planned episode while it is played: what has happened so far, and its record at the end."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from gpu_runtime.environments.results import ChunkResult, Reset
from gpu_runtime.workflows.evaluation_result import Cause, EpisodeRecord, Latency
from gpu_runtime.workflows.evaluation_videos import Film
from gpu_runtime.workflows.evaluation_witness import Played

_LAST_PICTURE_STEPS = 10


@dataclass(slots=True, kw_only=True)
class Trial:
    """``film`` is kept only where videos are wanted."""

    seed: int
    film: Film | None
    unbilled: str | None = None  # why its tenant does not pay
    instruction: str | None = None
    initial_state: str | None = None
    cause: Cause | None = None  # None while it goes on
    error: str | None = None
    success_once: bool = False
    success_at_end: bool = False
    steps: int = 0
    reward_sum: float = 0.0
    predict_s: list[float] = field(default_factory=list)
    group_sizes: list[int] = field(default_factory=list)

    @property
    def decisions(self) -> int:
        """Chunks predicted so far."""
        return len(self.predict_s)

    def begin(self, start: Reset) -> None:
        """Nothing is to be done where luck solved the task already."""
        self.initial_state = start.initial_state
        if start.solved:
            self.cause = Cause.SOLVED_AT_RESET

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Time one prediction."""
        started_s = time.perf_counter()
        yield
        self.predict_s.append(time.perf_counter() - started_s)

    def add(self, result: ChunkResult, instruction: str, seen: Sequence[np.ndarray]) -> None:
        """One more chunk was executed; ``seen`` are the pictures of when it was decided."""
        self.instruction = instruction
        if self.film is not None:
            self.film.add(instruction, seen, step=self.steps, shown=result.executed)
        self.steps += result.executed
        self.reward_sum += float(result.rewards_C.sum())
        self.success_once, self.success_at_end = result.success_once, result.success
        if result.terminated:
            self.cause = Cause.SUCCESS if result.success else Cause.TERMINATED
        elif result.truncated:
            self.cause = Cause.MAX_STEPS

    def fail(self, error: Exception) -> None:
        """Planned and not finished: a failure, whatever had been reached before."""
        code = getattr(error, "code", None)
        self.cause, self.error = Cause.ERROR, f"{code}: {error}" if isinstance(code, str) else str(error)
        self.success_once = self.success_at_end = False

    def end(self, instruction: str, seen: Sequence[np.ndarray]) -> None:
        """The last picture, which nobody acts upon any more."""
        self.instruction = instruction
        if self.film is not None:
            self.film.add(instruction, seen, step=self.steps, shown=_LAST_PICTURE_STEPS)

    @property
    def outcome(self) -> str:
        """As videos are sorted by."""
        if self.cause in (Cause.ERROR, Cause.SOLVED_AT_RESET):
            return str(self.cause)
        return "success" if self.success_once else "fail"

    def played(self, *, video: str | None, video_error: str | None) -> Played:
        """What is left of it once it has ended."""
        assert self.cause is not None
        record = EpisodeRecord(
            seed=self.seed,
            initial_state=self.initial_state,
            cause=self.cause,
            success_once=self.success_once,
            success_at_end=self.success_at_end,
            steps=self.steps,
            return_=round(self.reward_sum, 6),
            predict=Latency.of(self.predict_s),
            error=self.error,
            video=video,
            video_error=video_error,
        )
        return Played(
            record=record,
            outcome=self.outcome,
            instruction=self.instruction,
            predict_s=tuple(self.predict_s),
            group_sizes=tuple(self.group_sizes),
        )
