"""One record per planned episode, and the figures that follow from the records."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from pydantic import Field

from gpu_runtime.protocol.base import Message
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from gpu_runtime.workflows.wilson import SuccessRate, success_rate

DENOMINATOR = (
    "planned episodes less those solved at reset, which show nothing about the policy; "
    "an episode that ended with an error counts as a failure"
)


class Cause(StrEnum):
    """Why an episode ended."""

    SUCCESS = "success"  # the task was solved, which ended the episode
    MAX_STEPS = "max_steps"  # time was up
    TERMINATED = "terminated"  # the environment ended it unsolved, for example because something fell
    ERROR = "error"  # the environment was lost or no actions came: a failure
    SOLVED_AT_RESET = "solved_at_reset"  # by luck; no step was taken


class Latency(Message):
    """Milliseconds from a request to its actions, waiting included, over ``predictions``."""

    predictions: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency | None":
        """None where nothing was predicted."""
        if not seconds:
            return None
        times = np.asarray(seconds) * 1000
        return cls(
            predictions=len(seconds),
            mean_ms=round(float(times.mean()), 2),
            p50_ms=round(float(np.quantile(times, 0.5)), 2),
            p95_ms=round(float(np.quantile(times, 0.95)), 2),
            max_ms=round(float(times.max()), 2),
        )


class EpisodeRecord(Message):
    """``initial_state`` is equal for equal starts; None where the environment was lost before it told."""

    seed: int
    initial_state: str | None
    cause: Cause
    success_once: bool
    success_at_end: bool
    steps: int
    return_: float = Field(serialization_alias="return")
    predict: Latency | None
    error: str | None = None
    video: str | None = None
    video_error: str | None = None


class EpisodeError(Message):
    seed: int
    message: str


class EvaluationResult(Message):
    """``mean_return`` and ``mean_steps`` are of the episodes that were played to their end."""

    protocol: EvaluationProtocol
    protocol_hash: str
    planned: int
    counted: int
    denominator: str = DENOMINATOR
    success_once: SuccessRate
    success_at_end: SuccessRate
    solved_at_reset: tuple[int, ...]  # seeds
    errors: tuple[EpisodeError, ...]
    distinct_initial_states: int
    mean_return: float | None
    mean_steps: float | None
    predict: Latency | None
    mean_group_size: float | None  # requests answered by one forward
    wall_s: float
    episodes: tuple[EpisodeRecord, ...]

    @classmethod
    def of(
        cls,
        protocol: EvaluationProtocol,
        records: Sequence[EpisodeRecord],
        *,
        predict_s: Sequence[float],
        group_sizes: Sequence[int],
        wall_s: float,
    ) -> "EvaluationResult":
        """Figures of ``records``, one per planned episode in the protocol's order. Raises ValueError."""
        if tuple(record.seed for record in records) != protocol.seeds:
            raise ValueError(
                f"records: {len(records)}, allowed: one for each of {len(protocol.seeds)} planned episodes"
            )
        counted = [record for record in records if record.cause is not Cause.SOLVED_AT_RESET]
        played = [record for record in counted if record.cause is not Cause.ERROR]
        return cls(
            protocol=protocol,
            protocol_hash=protocol.hash,
            planned=len(records),
            counted=len(counted),
            success_once=success_rate(sum(record.success_once for record in counted), len(counted)),
            success_at_end=success_rate(sum(record.success_at_end for record in counted), len(counted)),
            solved_at_reset=tuple(record.seed for record in records if record.cause is Cause.SOLVED_AT_RESET),
            errors=tuple(
                EpisodeError(seed=record.seed, message=record.error or "")
                for record in records
                if record.cause is Cause.ERROR
            ),
            distinct_initial_states=len({record.initial_state for record in records} - {None}),
            mean_return=_mean([record.return_ for record in played]),
            mean_steps=_mean([record.steps for record in played]),
            predict=Latency.of(predict_s),
            mean_group_size=_mean(group_sizes),
            wall_s=round(wall_s, 2),
            episodes=tuple(records),
        )


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None
