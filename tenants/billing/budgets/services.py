"""Monthly budgets: what a tenant allows itself or a project, told when it is used up, kept to if it is hard."""

from collections.abc import Collection
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from tenants.access import access_row
from tenants.audit.services import audit
from tenants.billing.budgets.reads import budget_list, used_by_budget
from tenants.billing.currencies import require_payable
from tenants.billing.ledger.credits import AMOUNT_MAX
from tenants.billing.models import ALERT_PERCENTS, Budget, BudgetAlert
from tenants.billing.usage.periods import month_of
from tenants.billing.usage.selectors import spent
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Project, Tenant
from tenants.scope import platform_scope
from tenants.webhooks.services import webhook_event

__all__ = [
    "budget_change",
    "budget_create",
    "budget_end",
    "budget_for_update",
    "budget_list",
    "budgets_check",
    "exhausted",
]


@transaction.atomic
def budget_create(*, by: Actor, project: Project | None, amount: Decimal, hard: bool) -> Budget:
    """Set a budget for the tenant, or for one of its projects. Raises ApplicationError 409 if it has one."""
    require_payable(amount, by.tenant.currency, at_most=AMOUNT_MAX)
    try:
        with transaction.atomic():
            budget = Budget.objects.create(
                tenant=by.tenant, project=project, amount=amount, hard=hard, created_by=by.user
            )
    except IntegrityError:
        of = f"Project {project.slug!r}" if project else "The tenant"
        raise ApplicationError(
            code="budget_exists", status=409, detail=f"{of} has a budget; change or end that one."
        ) from None
    audit(by=by, verb="budget.created", target=budget, tenant=by.tenant, after=_told(budget))
    budgets_check([by.tenant.pk])
    return budget


@transaction.atomic
def budget_change(*, by: Actor, budget: Budget, amount: Decimal | None = None, hard: bool | None = None) -> Budget:
    """Change a budget that the caller has locked (`budget_for_update`). In force at once."""
    before = _told(budget)
    if amount is not None:
        require_payable(amount, by.tenant.currency, at_most=AMOUNT_MAX)
        budget.amount = amount
    budget.hard = budget.hard if hard is None else hard
    if _told(budget) != before:
        budget.version += 1
        budget.save(update_fields=["amount", "hard", "version"])
        audit(by=by, verb="budget.changed", target=budget, tenant=by.tenant, before=before, after=_told(budget))
        budgets_check([by.tenant.pk])
    return budget


@transaction.atomic
def budget_end(*, by: Actor, budget: Budget) -> None:
    """End a budget that the caller has locked; its alerts stay on record."""
    budget.ended_at = timezone.now()
    budget.save(update_fields=["ended_at"])
    audit(by=by, verb="budget.ended", target=budget, tenant=by.tenant, before=_told(budget))


def budget_for_update(tenant: Tenant, budget_id: UUID) -> Budget:
    """A budget in force, locked. Raises the 404 of a missing row for anything else."""
    rows = Budget.objects.select_for_update(no_key=True, of=("self",))
    return access_row(rows.filter(tenant=tenant, ended_at=None), "budget", pk=budget_id)


def exhausted(tenant: Tenant, project: Project | None = None) -> bool:
    """True if a hard budget of the tenant, or of this project, is used up this month: what runs must stop."""
    month = month_of(timezone.now())
    return any(_used(budget, month) >= budget.amount for budget in _hard(tenant, project))


@transaction.atomic
def budgets_check(tenant_ids: Collection[UUID], now: datetime | None = None) -> list[BudgetAlert]:
    """Tell of every threshold that was passed this month and not told before: once each, whoever checks.

    Two statements while there is nothing to tell. Returns the new alerts.
    """
    month = month_of(now or timezone.now())
    with platform_scope():
        budgets = list(Budget.objects.filter(tenant_id__in=set(tenant_ids), ended_at=None))
        if not budgets:
            return []
        used = used_by_budget(budgets, month)
        due = [budget for budget in budgets if _passed(budget, used[budget.pk])]
        told = _told_percents(due, month) if due else {}
        alerts = []
        for budget in sorted(due, key=lambda row: row.pk):
            if set(_passed(budget, used[budget.pk])) - told.get(budget.pk, set()):
                alerts += _alert(budget, month, used[budget.pk])
    return alerts


def _used(budget: Budget, month: date) -> Decimal:
    return spent(budget.tenant_id, month=month, project=budget.project_id)


def _hard(tenant: Tenant, project: Project | None) -> list[Budget]:
    with platform_scope():
        own = Q(project=None) if project is None else Q(project=None) | Q(project=project)
        rows = Budget.objects.filter(own, tenant=tenant, ended_at=None, hard=True)
        return list(rows)


def _passed(budget: Budget, used: Decimal) -> list[int]:
    return [percent for percent in ALERT_PERCENTS if used * 100 >= budget.amount * percent]


def _told_percents(budgets: Collection[Budget], month: date) -> dict[UUID, set[int]]:
    told: dict[UUID, set[int]] = {}
    rows = BudgetAlert.objects.filter(budget__in=budgets, month=month)
    for budget_id, percent in rows.values_list("budget_id", "percent"):
        told.setdefault(budget_id, set()).add(percent)
    return told


def _alert(budget: Budget, month: date, used: Decimal) -> list[BudgetAlert]:
    """Under the budget's lock, so that of two checks at once only one tells."""
    locked = Budget.objects.select_for_update(no_key=True, of=("self",)).select_related("tenant").get(pk=budget.pk)
    told = _told_percents([locked], month).get(locked.pk, set())
    alerts = []
    for percent in _passed(locked, used):
        if percent not in told:
            alerts.append(
                BudgetAlert.objects.create(
                    tenant=locked.tenant, budget=locked, month=month, percent=percent, spent=used
                )
            )
            _tell(locked, month, percent, used)
    return alerts


def _tell(budget: Budget, month: date, percent: int, used: Decimal) -> None:
    data: dict[str, Any] = _told(budget) | {
        "budget": str(budget.pk),
        "month": f"{month:%Y-%m}",
        "percent": percent,
        "spent": f"{used:f}",
        "currency": budget.tenant.currency,
    }
    audit(by=None, verb="budget.threshold_passed", target=budget, tenant=budget.tenant, after=data)
    webhook_event(budget.tenant_id, "budget.threshold_passed", data)


def _told(budget: Budget) -> dict[str, Any]:
    project = str(budget.project_id) if budget.project_id else None
    return {"amount": f"{budget.amount:f}", "hard": budget.hard, "project": project}
