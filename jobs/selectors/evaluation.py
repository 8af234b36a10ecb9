"""What an evaluation found: the report as it was published, and its episodes as rows."""

import json
from collections.abc import Iterator
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
        raise ApplicationError(code="report_invalid", status=502, detail="The published report is no JSON object.")
    return report


def episode_rows(report: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """One row of EPISODE_COLUMNS per planned episode, in the report's order."""
    for task in report.get("tasks", []):
        name = task["protocol"]["environment"]
        for own in task["episodes"]:
            flags = (own["success_once"], own["success_at_end"])
            yield (
                *(name, own["seed"], own["cause"], *flags, own["steps"], own["return"]),
                *(own.get("error"), own.get("initial_state")),
            )
