"""What an evaluation found: the report as it was published, and its episodes one by one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jobs.files import file_read
from jobs.models import Artifact, ArtifactKind
from jobs.selectors.jobs import artifact_list
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import tenant_scope

EPISODE_COLUMNS = (
    *("task", "seed", "outcome", "success_once", "success_at_end", "steps", "return", "error", "initial_state"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One planned episode. ``outcome``: success, max_steps, terminated, error or solved_at_reset."""

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
    def row(self) -> tuple[Any, ...]:
        """Values of EPISODE_COLUMNS."""
        return (
            *(self.task, self.seed, self.outcome, self.success_once, self.success_at_end, self.steps),
            *(self.total_return, self.error, self.initial_state),
        )


def evaluation_artifact(tenant: Tenant, job_id: UUID) -> Artifact:
    """The newest report of a job. Raises ApplicationError 404 for no such job and 409 for no report."""
    with tenant_scope(tenant):
        artifact = artifact_list(tenant, job_id, kind=ArtifactKind.EVALUATION).first()
    if artifact is None:
        detail = "The job has published no evaluation report; evaluation jobs do when they succeed."
        raise ApplicationError(code="no_evaluation", status=409, detail=detail)
    return artifact


def evaluation_report(tenant: Tenant, job_id: UUID) -> dict[str, Any]:
    """The full report. Raises ApplicationError 404, 409, 502 and 503."""
    content = file_read(evaluation_artifact(tenant, job_id))
    try:
        report = json.loads(content)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        raise _unreadable("is no JSON object")
    return report


def episodes_of(report: Mapping[str, Any]) -> list[Episode]:
    """Every planned episode in the report's order. Raises ApplicationError 502 for a report of another form."""
    try:
        return [_episode(task["protocol"]["environment"], row) for task in report["tasks"] for row in task["episodes"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable("is not in the form that this release knows") from error


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


def _unreadable(what: str) -> ApplicationError:
    return ApplicationError(code="report_invalid", status=502, detail=f"The published report {what}.")
