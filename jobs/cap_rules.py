"""When a started job has used up what it may: pure, over facts that were read in a fixed number of queries.

What is under way is counted in: ``ahead`` is the newest usage report of a job, and the step it is in will tell of as
much again before a stop takes effect. So a limit is reached and not passed by more than one report.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tenants.billing.money import plain
from tenants.billing.usage.selectors import Spending
from tenants.quotas.models import Resource

NOTHING = Spending(amount=Decimal(0), compute_us=0)


class CapReason(StrEnum):
    """Why the platform stops a job by itself; it keeps what it made."""

    BUDGET_REACHED = "budget_reached"  # the job's own, or a hard one of its project or tenant
    COMPUTE_LIMIT_REACHED = "compute_limit_reached"  # seconds of one job, or of all in a month
    MONTH_LIMIT_REACHED = "month_limit_reached"  # money of a month
    CREDIT_EXHAUSTED = "credit_exhausted"  # prepaid: neither its hold nor the credit has anything left
    KEY_CAP_REACHED = "key_cap_reached"  # what jobs of its API key may cost in all


class Scope(NamedTuple):
    """A tenant (``project`` None) or one of its projects."""

    tenant: UUID
    project: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A started job and what it allows itself."""

    job_id: UUID
    tenant_id: UUID
    project_id: UUID
    key_id: UUID | None
    max_cost: Decimal | None = None
    max_compute_s: int | None = None

    @property
    def scopes(self) -> tuple[Scope, Scope]:
        return Scope(self.tenant_id), Scope(self.tenant_id, self.project_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is used and allowed, of every live job and all that contains it. Absent limits are none."""

    jobs: Mapping[UUID, Spending] = field(default_factory=dict)
    ahead: Mapping[UUID, Spending] = field(default_factory=dict)  # of jobs: what is under way
    months: Mapping[Scope, Spending] = field(default_factory=dict)
    ahead_of: Mapping[Scope, Spending] = field(default_factory=dict)  # the sum over its live jobs
    limits: Mapping[tuple[Scope, Resource], int] = field(default_factory=dict)
    budgets: Mapping[Scope, Decimal] = field(default_factory=dict)
    key_caps: Mapping[UUID, Decimal] = field(default_factory=dict)
    keys: Mapping[UUID, Decimal] = field(default_factory=dict)  # spent
    ahead_of_keys: Mapping[UUID, Decimal] = field(default_factory=dict)
    left: Mapping[UUID, Decimal] = field(default_factory=dict)  # of jobs of prepaid tenants: own hold and credit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A limit that a job has come to, in words for people."""

    reason: CapReason
    message: str


def cap_reached(job: LiveJob, facts: Facts) -> Reached | None:
    """The first limit the job has come to: its own first, then those of its key, project and tenant."""
    return next(_all_reached(job, facts), None)


def _all_reached(job: LiveJob, facts: Facts) -> Iterator[Reached]:
    yield from _own(job, facts)
    if job.key_id is not None:
        yield from _of_key(job.key_id, facts)
    for scope in job.scopes:
        yield from _month(scope, facts)
    left = facts.left.get(job.job_id)
    if left is not None and left <= facts.ahead.get(job.job_id, NOTHING).amount:
        yield Reached(reason=CapReason.CREDIT_EXHAUSTED, message="The prepaid credit is used up.")


def _of_key(key_id: UUID, facts: Facts) -> Iterator[Reached]:
    cap, none = facts.key_caps.get(key_id), NOTHING.amount
    if cap is not None and facts.keys.get(key_id, none) + facts.ahead_of_keys.get(key_id, none) >= cap:
        message = f"All jobs of its API key may cost {plain(cap)} together."
        yield Reached(reason=CapReason.KEY_CAP_REACHED, message=message)


def _own(job: LiveJob, facts: Facts) -> Iterator[Reached]:
    used, ahead = facts.jobs.get(job.job_id, NOTHING), facts.ahead.get(job.job_id, NOTHING)
    amount, compute_us = used.amount + ahead.amount, used.compute_us + ahead.compute_us
    if job.max_cost is not None and amount >= job.max_cost:
        yield Reached(reason=CapReason.BUDGET_REACHED, message=f"The job may cost {plain(job.max_cost)}.")
    if job.max_compute_s is not None and compute_us >= job.max_compute_s * 1_000_000:
        yield Reached(
            reason=CapReason.BUDGET_REACHED, message=f"The job may use {job.max_compute_s} s of device time."
        )
    for scope in job.scopes:
        limit = facts.limits.get((scope, Resource.COMPUTE_S_PER_JOB))
        if limit is not None and compute_us >= limit * 1_000_000:
            yield Reached(
                reason=CapReason.COMPUTE_LIMIT_REACHED,
                message=f"A job of {_owner(scope)} may use {limit} s of device time.",
            )


def _month(scope: Scope, facts: Facts) -> Iterator[Reached]:
    used, ahead = facts.months.get(scope, NOTHING), facts.ahead_of.get(scope, NOTHING)
    amount, compute_us = used.amount + ahead.amount, used.compute_us + ahead.compute_us
    budget = facts.budgets.get(scope)
    if budget is not None and amount >= budget:
        yield Reached(
            reason=CapReason.BUDGET_REACHED, message=f"The month's budget of {_owner(scope)} is {plain(budget)}."
        )
    seconds = facts.limits.get((scope, Resource.COMPUTE_S_PER_MONTH))
    if seconds is not None and compute_us >= seconds * 1_000_000:
        yield Reached(
            reason=CapReason.COMPUTE_LIMIT_REACHED,
            message=f"All jobs of {_owner(scope)} may use {seconds} s of device time in a month.",
        )
    money = facts.limits.get((scope, Resource.MONEY_PER_MONTH))
    if money is not None and amount >= money:
        yield Reached(
            reason=CapReason.MONTH_LIMIT_REACHED, message=f"All jobs of {_owner(scope)} may cost {money} in a month."
        )


def _owner(scope: Scope) -> str:
    return "the tenant" if scope.project is None else "the project"
