"""Reports of evaluations."""

from typing import Any, TypedDict


class SuccessRate(TypedDict):
    """Successes of counted episodes with the Wilson 95 % interval; None where there was no episode to judge by."""

    successes: int
    episodes: int
    rate: float | None
    low: float | None
    high: float | None


Episode = TypedDict(
    "Episode",
    {
        "seed": int,
        "initial_state": str | None,
        "cause": str,  # success, max_steps, terminated, error or solved_at_reset
        "success_once": bool,
        "success_at_end": bool,
        "steps": int,
        "return": float,
        "error": str | None,
        "video": str | None,
    },
)


class TaskResult(TypedDict):
    """One task: what was planned, what counted (less what was solved at reset), and each episode."""

    protocol: dict[str, Any]
    protocol_hash: str
    planned: int
    counted: int
    success_once: SuccessRate
    success_at_end: SuccessRate
    mean_return: float | None
    mean_steps: float | None
    episodes: list[Episode]


class Totals(TypedDict):
    """Of some tasks together; every counted episode weighs the same."""

    planned: int
    counted: int
    errors: int
    success_once: SuccessRate
    success_at_end: SuccessRate


class SuiteTotals(Totals):
    suite: str
    tasks: list[str]


class EvaluationReport(TypedDict):
    """Success of one policy. An episode that ended with an error counts as a failure."""

    tasks: list[TaskResult]
    suites: list[SuiteTotals]
    overall: Totals
    protocol_hashes: list[str]
