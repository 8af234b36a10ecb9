"""Several jobs side by side: how good each became, what it took, and whether a difference is one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from frontend.evaluations import Rate, ReportUnreadable, read_report
from frontend.successes import Success, latest_successes
from frontend.templatetags.console import RUN_SLOTS, run_slot
from jobs.models import Artifact, Job
from jobs.selectors.comparison import jobs_get, newest_reports
from tenants.billing.usage.selectors import Cost, job_costs
from tenants.models import Tenant

COMPARED_MAX = RUN_SLOTS  # as many as there are colours
SIGNIFICANT_P = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One job of a comparison. ``repeats``: its run colour is taken by an earlier one, so its lines are dashed.

    ``once`` and ``at_end`` come from the newest report of the job itself, or of an evaluation of its policies
    (``evaluated_by``); both may stand in one comparison, so ``report_id`` tells that they show the same report.
    ``training`` is what it told of its own episodes last.
    """

    job: Job
    cost: Cost
    compute_us: int
    repeats: bool
    once: Rate | None = None
    at_end: Rate | None = None
    evaluated_by: Job | None = None
    report_id: UUID | None = None
    training: Success | None = None


def compared(tenant: Tenant, job_ids: Sequence[UUID]) -> list[Compared]:
    """In the order asked for. Raises the 404 of a missing job, which a foreign one is too."""
    jobs = jobs_get(tenant, job_ids)
    costs, successes = job_costs(tenant, job_ids), latest_successes(tenant, jobs)
    reports, slots, rows = newest_reports(tenant, job_ids), set[int](), []
    for job in jobs:
        report, slot = reports.get(job.pk), run_slot(job.number)
        once, at_end = _rates(report)
        row = Compared(
            job=job,
            cost=costs[job.pk],
            compute_us=_compute_us(costs[job.pk]),
            repeats=slot in slots,
            once=once,
            at_end=at_end,
            report_id=report.pk if report is not None else None,
            evaluated_by=report.job if report is not None and report.job_id != job.pk else None,
            training=successes.get(job.pk) if job.kind != "evaluation" else None,
        )
        slots.add(slot)
        rows.append(row)
    return rows


def _rates(report: Artifact | None) -> tuple[Rate | None, Rate | None]:
    """Over all tasks; a report nobody can read tells nothing."""
    if report is None:
        return None, None
    try:
        overall = read_report(report.manifest).overall
    except ReportUnreadable:
        return None, None
    return overall.once, overall.at_end


def _compute_us(cost: Cost) -> int:
    return sum(line.quantity for line in cost.lines if line.meter.endswith("compute_us"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The two highest rates, and how likely a difference like theirs is if the policies are equally good."""

    best: Job
    second: Job
    points: float  # percentage points between them
    p: float
    episodes: tuple[int, int]
    same_seeds: bool

    @property
    def significant(self) -> bool:
        return self.p < SIGNIFICANT_P


def verdict(rows: Sequence[Compared]) -> Verdict | None:
    """None unless there are two different evaluations."""
    reports = {row.report_id: row for row in reversed(rows)}  # of two rows with one report, the first
    judged = sorted(
        ((row.at_end, row) for row in reports.values() if row.at_end is not None and row.at_end.percent is not None),
        key=lambda pair: -(pair[0].percent or 0.0),
    )
    if len(judged) < 2:
        return None
    (best, first), (other, second) = judged[:2]
    return Verdict(
        best=first.job,
        second=second.job,
        points=(best.percent or 0.0) - (other.percent or 0.0),
        p=two_sided_p((best.successes, best.episodes), (other.successes, other.episodes)),
        episodes=(best.episodes, other.episodes),
        same_seeds=_seeds(first) == _seeds(second),
    )


def _seeds(row: Compared) -> tuple[object, object]:
    spec: Mapping[str, object] = (row.evaluated_by or row.job).spec
    return spec.get("first_seed"), spec.get("episodes")


def two_sided_p(one: tuple[int, int], other: tuple[int, int]) -> float:
    """P of two (successes, episodes) under one common rate: the pooled two-proportion z-test; 1 where all agree."""
    (k1, n1), (k2, n2) = one, other
    pooled = (k1 + k2) / (n1 + n2)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / n1 + 1 / n2))
    return math.erfc(abs(k1 / n1 - k2 / n2) / spread / math.sqrt(2)) if spread else 1.0
