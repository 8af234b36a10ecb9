"""The episodes of an evaluation as its page lists them, out of the report's file."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from jobs.selectors.evaluation import evaluation_report
from tenants.errors import ApplicationError
from tenants.models import Tenant

CAUSES = {
    "success": "Success",
    "max_steps": "Step limit",
    "terminated": "Ended unsolved",
    "error": "Error",
    "solved_at_reset": "Solved at reset",
}


class ReportMissing(Exception):
    """The report cannot be read now; the message says why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One planned episode. ``outcome`` is a key of CAUSES."""

    task: str
    seed: int
    outcome: str
    success_once: bool
    success_at_end: bool
    steps: int
    total_return: float | None
    error: str
    initial_state: str

    @property
    def words(self) -> str:
        return CAUSES.get(self.outcome, self.outcome)

    @property
    def tone(self) -> str:
        """The colour class of its outcome."""
        return outcome_tone(self.outcome)


def outcome_tone(outcome: str) -> str:
    """``succeeded``, ``failed``, or a shade for what is neither."""
    tones = {"success": "succeeded", "error": "cancelling", "solved_at_reset": "cancelled"}
    return tones.get(outcome, "failed")


def read_episodes(tenant: Tenant, job_id: UUID) -> list[Episode]:
    """Every planned episode in the report's order. Raises ReportMissing, and ApplicationError 404."""
    try:
        report = evaluation_report(tenant, job_id)
        return [_episode(task["protocol"]["environment"], row) for task in report["tasks"] for row in task["episodes"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportMissing("The report is not in the form this console knows.") from error
    except ApplicationError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise
        raise ReportMissing(error.detail) from error


def _episode(task: str, row: Mapping[str, Any]) -> Episode:
    return Episode(
        task=str(task),
        seed=int(row["seed"]),
        outcome=str(row["cause"]),
        success_once=bool(row["success_once"]),
        success_at_end=bool(row["success_at_end"]),
        steps=int(row["steps"]),
        total_return=row["return"],
        error=row.get("error") or "",
        initial_state=row.get("initial_state") or "",
    )
