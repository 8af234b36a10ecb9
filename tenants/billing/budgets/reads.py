"""Reading budgets: what was spent of them, what is reserved, what is left."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from uuid import UUID

from django.db.models import QuerySet, Sum

from tenants.billing.ledger.books import ZERO
from tenants.billing.models import Budget, BudgetAlert, Hold, UsageRollup
from tenants.billing.usage.periods import month_after
from tenants.models import Tenant

_Of = tuple[UUID, UUID | None]  # tenant and project, None for all of the tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A budget in one month. ``left`` = amount - spent - reserved, and may be negative."""

    budget: Budget
    spent: Decimal
    reserved: Decimal
    told: tuple[int, ...]  # percents that were passed

    @property
    def left(self) -> Decimal:
        return self.budget.amount - self.spent - self.reserved

    @property
    def over(self) -> Decimal:
        """By how much more than the budget is spent or reserved."""
        return max(-self.left, ZERO)


def budget_list(tenant: Tenant) -> QuerySet[Budget]:
    """Budgets in force."""
    return Budget.objects.filter(tenant=tenant, ended_at=None).select_related("project", "tenant")


def alert_list(tenant: Tenant) -> QuerySet[BudgetAlert]:
    """Every threshold that was passed and told, newest first; of budgets that have ended too."""
    rows = BudgetAlert.objects.filter(budget__tenant=tenant).select_related("budget__project")
    return rows.order_by("-created_at", "-pk")


def budget_states(budgets: Sequence[Budget], month: date) -> list[BudgetState]:
    """The state of each of these budgets in a month: three queries, however many they are. Needs an open scope."""
    used, kept = used_by_budget(budgets, month), _reserved(budgets)
    told: dict[UUID, list[int]] = {}
    alerts = BudgetAlert.objects.filter(budget__in=budgets, month=month).order_by("percent")
    for budget_id, percent in alerts.values_list("budget_id", "percent"):
        told.setdefault(budget_id, []).append(percent)
    return [
        BudgetState(
            budget=budget,
            spent=used[budget.pk],
            reserved=kept.get((budget.tenant_id, budget.project_id), ZERO),
            told=tuple(told.get(budget.pk, ())),
        )
        for budget in budgets
    ]


def used_by_budget(budgets: Collection[Budget], month: date) -> dict[UUID, Decimal]:
    """Money each of these budgets has gone through in a month, in one query. Needs an open scope."""
    used: dict[_Of, Decimal] = {}
    rows = UsageRollup.objects.filter(
        tenant_id__in={budget.tenant_id for budget in budgets}, day__gte=month, day__lt=month_after(month)
    )
    sums = rows.values("tenant_id", "project_id").annotate(total=Sum("amount"))
    for row in sums.order_by("tenant_id", "project_id"):
        _add(used, row["tenant_id"], row["project_id"], row["total"])
    return {budget.pk: used.get((budget.tenant_id, budget.project_id), ZERO) for budget in budgets}


def _reserved(budgets: Collection[Budget]) -> dict[_Of, Decimal]:
    kept: dict[_Of, Decimal] = {}
    rows = Hold.objects.filter(tenant_id__in={budget.tenant_id for budget in budgets}, released_at=None)
    sums = rows.values("tenant_id", "project_id").annotate(held=Sum("amount"), used=Sum("captured"))
    for row in sums.order_by("tenant_id", "project_id"):
        _add(kept, row["tenant_id"], row["project_id"], row["held"] - row["used"])
    return kept


def _add(sums: dict[_Of, Decimal], tenant_id: UUID, project_id: UUID | None, amount: Decimal) -> None:
    """To the project's sum, if there is one, and to the tenant's."""
    for of in {(tenant_id, project_id), (tenant_id, None)}:
        sums[of] = sums.get(of, ZERO) + amount
