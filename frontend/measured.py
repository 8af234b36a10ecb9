"""What evaluations found of policies: each with its report, tasks apart, over the versions that were evaluated."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from frontend.evaluations import Line, Rate, Report, ReportUnreadable, read_report
from jobs.models import Artifact, Job
from jobs.selectors.policies import evaluations_of, newest_reports, reports_of
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One evaluation; no ``report`` until one can be read. ``is_start``: of the policy that a job started from."""

    job: Job
    policy: Artifact
    report: Report | None
    is_start: bool = False

    @property
    def version_word(self) -> str:
        return "the start" if self.is_start else f"version {self.policy.policy_version}"

    @property
    def overall(self) -> Line | None:
        return self.report.overall if self.report else None


def measured(tenant: Tenant, policy_ids: Collection[UUID], *, start: UUID | None = None) -> tuple[Measured, ...]:
    """The newest evaluations of these policies and of ``start``, newest first. Two queries."""
    jobs = evaluations_of(tenant, [*policy_ids, *([start] if start else [])])
    reports = reports_of(tenant, [job.pk for job in jobs])
    return tuple(
        Measured(
            job=job,
            policy=job.policy,
            report=_readable(reports.get(job.pk)),
            is_start=job.policy_id == start and start not in set(policy_ids),
        )
        for job in jobs
        if job.policy is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The newest result of a policy, and the evaluation that found it."""

    job: Job
    report: Report

    @property
    def overall(self) -> Line:
        return self.report.overall


def latest_results(tenant: Tenant, policy_ids: Collection[UUID]) -> dict[UUID, Result]:
    """By policy: its newest result; those whose newest report nobody can read are left out."""
    found = {}
    for policy_id, artifact in newest_reports(tenant, policy_ids).items():
        report = _readable(artifact)
        if report is not None:
            found[policy_id] = Result(job=artifact.job, report=report)
    return found


def tasks_of(found: Sequence[Measured]) -> tuple[str, ...]:
    """Every task that was evaluated."""
    return tuple(sorted({line.name for own in found if own.report for line in own.report.tasks}))


def rate_of(own: Measured, task: str, measure: str) -> Rate | None:
    """``measure``: "once" or "at_end"; None where the task was not played or no episode counts."""
    lines = own.report.tasks if own.report else ()
    line = next((line for line in lines if line.name == task), None)
    rate: Rate | None = getattr(line, measure) if line else None
    return rate if rate and rate.percent is not None else None


def _readable(artifact: Artifact | None) -> Report | None:
    if artifact is None:
        return None
    try:
        return read_report(artifact.manifest)
    except ReportUnreadable:
        return None
