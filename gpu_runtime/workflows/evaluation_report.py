"""Several tasks in one report: each task's figures, those of each suite, and over all."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpu_runtime.protocol.base import Message
from gpu_runtime.workflows.evaluation_result import EvaluationResult
from gpu_runtime.workflows.wilson import SuccessRate, success_rate

_MANISKILL = "maniskill"


class Totals(Message):
    """Of some tasks together; every counted episode weighs the same."""

    planned: int
    counted: int
    errors: int
    success_once: SuccessRate
    success_at_end: SuccessRate

    @classmethod
    def of(cls, results: Sequence[EvaluationResult]) -> "Totals":
        counted = sum(result.counted for result in results)
        return cls(
            planned=sum(result.planned for result in results),
            counted=counted,
            errors=sum(len(result.errors) for result in results),
            success_once=success_rate(sum(result.success_once.successes for result in results), counted),
            success_at_end=success_rate(sum(result.success_at_end.successes for result in results), counted),
        )


class SuiteTotals(Totals):
    """Tasks of one namespace, for example libero_spatial."""

    suite: str
    tasks: tuple[str, ...]


class EvaluationReport(Message):
    """What an evaluation job leaves behind."""

    tasks: tuple[EvaluationResult, ...]
    suites: tuple[SuiteTotals, ...]
    overall: Totals
    protocol_hashes: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[EvaluationResult]) -> "EvaluationReport":
        """From the results of the tasks, in the order of the job's specification."""
        return cls(
            tasks=tuple(results),
            suites=tuple(_suites(results)),
            overall=Totals.of(results),
            protocol_hashes=tuple(result.protocol_hash for result in results),
        )

    def summary(self) -> dict[str, Any]:
        """JSON values, without the single episodes."""
        report = self.model_dump(mode="json", by_alias=True)
        for task in report["tasks"]:
            del task["episodes"]
        return report


def suite_of(environment: str) -> str:
    """The namespace of an environment's id."""
    return environment.rpartition("/")[0] or _MANISKILL


def _suites(results: Sequence[EvaluationResult]) -> Iterable[SuiteTotals]:
    by_suite: dict[str, list[EvaluationResult]] = {}
    for result in results:
        by_suite.setdefault(suite_of(result.protocol.environment), []).append(result)
    for suite, of_suite in by_suite.items():
        tasks = tuple(result.protocol.environment for result in of_suite)
        yield SuiteTotals(suite=suite, tasks=tasks, **dict(Totals.of(of_suite)))
