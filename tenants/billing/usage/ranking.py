"""Reading the bill for tables and figures: the largest groups of a period, and money by day."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from django.db.models import Count, Min, Sum

from tenants.billing.models import UsageRollup
from tenants.billing.usage.costs import CostLine, lines_of
from tenants.billing.usage.selectors import UsageFilter
from tenants.models import ApiKey, Project, Tenant
from tenants.scope import tenant_scope

RankBy = Literal["job", "project", "key"]
_COLUMNS: dict[RankBy, str] = {"job": "job_id", "project": "project_id", "key": "key_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGroup:
    """A job, project or key: what it came to, by meter. ``key`` None: usage of none. ``label``: not of jobs."""

    key: UUID | None
    label: str
    amount: Decimal
    lines: tuple[CostLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Some of the groups in the order asked for; ``count`` and ``largest`` are of all of them."""

    groups: tuple[RankedGroup, ...]
    count: int
    largest: Decimal


def usage_ranking(
    tenant: Tenant, by: RankBy, wanted: UsageFilter, *, first: int = 0, most: int = 50, rising: bool = False
) -> Ranking:
    """Groups by their money, the largest first or last, from ``first`` on. At most six queries, however many."""
    column = _COLUMNS[by]
    with tenant_scope(tenant):
        rows = wanted.apply(UsageRollup.objects.all())
        sums = rows.order_by().values(column).annotate(money=Sum("amount"))
        ordered = sums.order_by("money" if rising else "-money", column)
        shown = list(ordered.values_list(column, "money")[first : first + most])
        count = rows.aggregate(count=Count(column, distinct=True))["count"]
        count += 0 if by == "job" else int(rows.filter(**{column: None}).exists())
        top = shown[0][1] if shown and not rising and first == 0 else _largest(ordered)
        keys = [key for key, _ in shown]
        lines, labels = _lines(rows, column, keys), _labels(by, keys)
    groups = (
        RankedGroup(key=key, label=labels.get(key, ""), amount=money, lines=tuple(lines.get(key, ())))
        for key, money in shown
    )
    return Ranking(groups=tuple(groups), count=count, largest=top)


def money_by_day(
    tenant: Tenant, by: RankBy, wanted: UsageFilter, keys: list[UUID | None]
) -> dict[tuple[date, UUID | None], Decimal]:
    """What these groups came to on each UTC day."""
    column = _COLUMNS[by]
    with tenant_scope(tenant):
        rows = _of_keys(wanted.apply(UsageRollup.objects.all()), column, keys)
        sums = rows.order_by().values_list("day", column).annotate(money=Sum("amount"))
        return {(day, key): money for day, key, money in sums}


def group_label(tenant: Tenant, by: RankBy, key: UUID) -> str:
    """What a project or an API key of the tenant is called; empty for any other id."""
    with tenant_scope(tenant):
        return _labels(by, [key]).get(key, "")


def first_day(tenant: Tenant) -> date | None:
    """The first UTC day the tenant used anything; None before."""
    with tenant_scope(tenant):
        day: date | None = UsageRollup.objects.aggregate(first=Min("day"))["first"]
        return day


def _largest(ordered: Any) -> Decimal:
    largest: Decimal | None = ordered.order_by("-money").values_list("money", flat=True).first()
    return largest or Decimal(0)


def _lines(rows: Any, column: str, keys: list[UUID | None]) -> dict[UUID | None, list[CostLine]]:
    found: dict[UUID | None, list[CostLine]] = {}
    for key, line in lines_of(_of_keys(rows, column, keys), column):
        found.setdefault(key, []).append(line)
    return found


def _labels(by: RankBy, keys: list[UUID | None]) -> dict[UUID | None, str]:
    if by == "project":
        return dict(Project.objects.filter(pk__in=[key for key in keys if key]).values_list("pk", "name"))
    if by == "key":
        rows = ApiKey.objects.filter(pk__in=[key for key in keys if key]).values_list("pk", "name", "prefix")
        return {key: f"{name} ({prefix})" for key, name, prefix in rows}
    return {}


def _of_keys(rows: Any, column: str, keys: list[UUID | None]) -> Any:
    """NULL is among the keys of projects and API keys: usage of none."""
    known = rows.filter(**{f"{column}__in": [key for key in keys if key is not None]})
    return known | rows.filter(**{column: None}) if None in keys else known
