"""What a job costs: so far, per hour at the moment, at the end as a range, and what it may still spend."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from frontend.state_line import time_left
from jobs.models import Job
from jobs.selectors.pace import Burn, Pace, recent_burn
from jobs.states import TERMINAL, JobState
from tenants.billing.budgets.reads import BudgetState, budget_list, budget_states
from tenants.billing.models import Budget, Hold
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.selectors import Cost, job_cost
from tenants.models import Tenant
from tenants.scope import tenant_scope

_HOUR_S = Decimal(3600)
_WARN_AT, _FULL_AT = 80, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An amount that is not known exactly. ``is_cut``: it would be more, but a cap ends the job there."""

    low: Decimal
    high: Decimal
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Meterbar:
    """An amount of a limit. ``tone``: the colour class of a state; amber from 80 %, red when it is used up."""

    label: str
    spent: Decimal
    limit: Decimal
    left: Decimal  # negative: over it
    reserved: Decimal = Decimal(0)

    @property
    def percent(self) -> int:
        return int(self.spent * 100 / self.limit) if self.limit > 0 else 100

    @property
    def tone(self) -> str:
        return "failed" if self.percent >= _FULL_AT else "cancelling" if self.percent >= _WARN_AT else "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoney:
    """Everything in the tenant's currency. ``held``: still reserved for the job; None where nothing is."""

    cost: Cost
    per_hour: Decimal | None
    projected: Range | None
    cap: Meterbar | None
    budgets: tuple[Meterbar, ...]
    held: Decimal | None


def job_money(tenant: Tenant, job: Job, pace: Pace | None, *, now: datetime) -> JobMoney:
    """Of one job, in a fixed number of queries; an ended job has neither a rate nor a projection."""
    cost, cap = job_cost(tenant, job.pk), (job.spec.get("budget") or {}).get("max_cost")
    burn = recent_burn(tenant, job.pk, now=now) if job.state == JobState.RUNNING else None
    left = time_left(step=job.step, total=job.total_steps, pace=pace) if burn else None
    limit = None if cap is None else Decimal(cap)
    with tenant_scope(tenant):
        hold = Hold.objects.filter(job_id=job.pk, released_at=None).first() if job.state not in TERMINAL else None
        own = [row for row in budget_list(tenant) if row.project_id in (None, job.project_id)]
        states = budget_states(own, month_of(now)) if own and job.state not in TERMINAL else []
    return JobMoney(
        cost=cost,
        per_hour=per_hour(burn),
        projected=projected(cost.amount, step=job.step, total=job.total_steps, burn=burn, left=left, cap=limit),
        cap=None if limit is None else Meterbar(label="cap", spent=cost.amount, limit=limit, left=limit - cost.amount),
        budgets=_bars(states),
        held=None if hold is None else max(hold.amount - hold.captured, Decimal(0)),
    )


def per_hour(burn: Burn | None) -> Decimal | None:
    """What an hour like the last minutes would cost; None where nothing was measured lately."""
    return None if burn is None or burn.seconds <= 0 else burn.amount * _HOUR_S / Decimal(burn.seconds)


def projected(
    spent: Decimal, *, step: int, total: int, burn: Burn | None, left: timedelta | None, cap: Decimal | None
) -> Range | None:
    """What it will have cost at the end.

    One edge is what the steps so far cost on average, the other what is being spent now for as long as it will still
    take; the truth of a job that changes its speed lies between. It stops at ``cap``. None while either is unknown.
    """
    now = per_hour(burn)
    if left is None or now is None or step <= 0 or step >= total:
        return None
    by_step = spent * (total - step) / step
    by_time = now * Decimal(left.total_seconds()) / _HOUR_S
    low, high = spent + min(by_step, by_time), spent + max(by_step, by_time)
    if cap is None:
        return Range(low=low, high=high)
    return Range(low=min(low, cap), high=min(high, cap), is_cut=high > cap)


def _bars(states: Sequence[BudgetState]) -> tuple[Meterbar, ...]:
    return tuple(
        Meterbar(
            label=_label(one.budget),
            spent=one.spent,
            limit=one.budget.amount,
            left=one.left,
            reserved=one.reserved,
        )
        for one in states
    )


def _label(budget: Budget) -> str:
    whose = f"project {budget.project.name}" if budget.project else budget.tenant.name
    return f"month of {whose}"
