"""What the frame around every page shows: live jobs, the month's money, the runtime's health."""

import time
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from django.utils import timezone

from jobs.selectors.jobs import job_list
from jobs.selectors.runtime import RuntimeReport, runtime_report
from jobs.states import LIVE
from tenants.billing.budgets.reads import budget_list
from tenants.billing.usage.selectors import Cost, tenant_cost
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.permissions import Permission

SPEND_AGE_S = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Of one member, as of now. None where the role may not read it, or where there is none."""

    live_jobs: int
    spend: Cost
    budget: Decimal | None  # of the whole tenant, for this month
    runtime: RuntimeReport | None

    @property
    def spend_tone(self) -> str:
        """The colour class of the month's bar."""
        if self.budget is None or self.spend.amount < self.budget * 8 / 10:
            return ""
        return "failed" if self.spend.amount >= self.budget else "cancelling"


def shell_of(actor: Actor) -> Shell:
    """A constant number of queries, whatever the tenant has."""
    tenant = actor.tenant
    own = budget_list(tenant).filter(project=None).values_list("amount", flat=True)
    return Shell(
        live_jobs=job_list(tenant).filter(state__in=LIVE).count(),
        spend=month_spend(tenant),
        budget=own.first() if actor.may(Permission.BILLING_READ) else None,
        runtime=runtime_report() if actor.may(Permission.RUNTIME_READ) else None,
    )


def month_spend(tenant: Tenant) -> Cost:
    """This month's cost, at most a quarter of a minute old: pages refresh often, and the sum is over all usage."""
    month = timezone.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return _spend_once(tenant, month, int(time.monotonic()) // SPEND_AGE_S)


@lru_cache(maxsize=1024)
def _spend_once(tenant: Tenant, month: datetime, period: int) -> Cost:
    """``period`` only makes the answer age."""
    return tenant_cost(tenant, since=month)
