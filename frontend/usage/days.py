"""Spend by day as a figure: stacked by service, project or job; what keeps the budget, and what is expected."""

from calendar import monthrange
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from frontend.figures import NARROW, PALETTE, WIDE, meter_colour, run_colour
from frontend.figures.stacks import Part, stacked_bars
from frontend.templatetags.console import currency_sign, run_slot
from frontend.usage.choice import Choice, Split
from frontend.usage.meters import SERVICES
from frontend.usage.projection import Projection
from jobs.selectors.names import job_names
from tenants.billing.models import NO_JOB
from tenants.billing.usage.periods import month_after
from tenants.billing.usage.ranking import RankBy, money_by_day, usage_ranking
from tenants.billing.usage.selectors import UsageFilter, UsageTotal
from tenants.models import Tenant

if TYPE_CHECKING:
    import plotly.graph_objects as go

TOP = 6  # projects or jobs with a colour of their own; the others are one
_CODES = {"train": "train.samples", "predict": "predict.chunks", "env": "env.steps", "storage": "storage.byte_hours"}


def day_figure(
    tenant: Tenant,
    choice: Choice,
    totals: Sequence[UsageTotal],
    *,
    today: date,
    budget: Decimal | None,
    projection: Projection | None,
) -> "go.Figure":
    """A month of bars. ``totals``: the month by day and meter; ``budget``: of the tenant as a whole, per month."""
    length = monthrange(choice.month.year, choice.month.month)[1]
    days = range(1, length + 1)
    if choice.split == Split.METER:
        parts = _services(totals, choice.month, days)
    else:
        parts = _largest(tenant, choice, totals, days)
    symbol = currency_sign(tenant.currency)
    fig = stacked_bars(list(days), parts, prefix=symbol)
    ticks = [1, 5, 10, 15, 20, 25, length]
    fig.update_xaxes(range=[0.3, length + 0.7], tickvals=ticks, title=f"{choice.month:%B}, UTC days")
    fig.update_layout(margin_b=40)
    if budget is not None:
        _budget_line(fig, budget / length, symbol, length, drawn=_last_drawn(choice.month, today, length))
    if today.replace(day=1) == choice.month and today.day < length:
        _future(fig, today.day, length, symbol, projection)
    return fig


def _services(totals: Sequence[UsageTotal], month: date, days: Sequence[int]) -> list[Part]:
    """Training, inference, environment and storage, those that cost anything."""
    money: dict[tuple[str, int], Decimal] = {}
    for total in totals:
        if isinstance(total.group, date) and total.group >= month:
            at = (total.line.meter.partition(".")[0], total.group.day)
            money[at] = money.get(at, Decimal(0)) + total.line.amount
    return [
        Part(
            name=name,
            colour=meter_colour(_CODES[code]),
            values=[float(money.get((code, day), 0)) for day in days],
        )
        for code, name in SERVICES.items()
        if any(amount for (own, _), amount in money.items() if own == code)
    ]


def _largest(tenant: Tenant, choice: Choice, totals: Sequence[UsageTotal], days: Sequence[int]) -> list[Part]:
    by: RankBy = "job" if choice.split == Split.JOB else "project"
    wanted = UsageFilter(since=choice.month, until=month_after(choice.month))
    ranking = usage_ranking(tenant, by, wanted, most=TOP)
    keys = [group.key for group in ranking.groups]
    names: dict[UUID | None, str] = {group.key: group.label for group in ranking.groups}
    slots = {key: place for place, key in enumerate(keys, 1)}
    if by == "job":
        known = job_names(tenant, [key for key in keys if key is not None])
        names = {NO_JOB: "Storage", **{key: f"J-{name.number} {name.name}" for key, name in known.items()}}
        slots = {key: run_slot(name.number) for key, name in known.items()}
    spent = money_by_day(tenant, by, wanted, keys)
    parts = [
        Part(
            name=names.get(key) or ("Storage" if key is None else "Unknown"),
            colour=run_colour(slots[key]) if key in slots and key is not None else meter_colour("storage"),
            values=[float(spent.get((choice.month.replace(day=day), key), 0)) for day in days],
        )
        for key in keys
    ]
    return [*parts, *_others(totals, choice.month, parts, days)] if ranking.count > TOP else parts


def _others(totals: Sequence[UsageTotal], month: date, parts: Sequence[Part], days: Sequence[int]) -> list[Part]:
    """What all the rest came to: the day's sum less what is shown."""
    sums = dict.fromkeys(days, 0.0)
    for total in totals:
        if isinstance(total.group, date) and total.group >= month:
            sums[total.group.day] += float(total.line.amount)
    rest = [max(0.0, sums[day] - sum(part.values[day - 1] for part in parts)) for day in days]
    return [Part(name="All others", colour=PALETTE["--ink-3"], values=rest)]


def _last_drawn(month: date, today: date, length: int) -> int:
    return today.day if today.replace(day=1) == month else length


def _budget_line(fig: "go.Figure", a_day: Decimal, symbol: str, length: int, *, drawn: int) -> None:
    """What keeps the budget, named where fewer bars are: at the right in the month's first half, else at the left."""
    y, line = float(a_day), {"color": PALETTE["--ink-3"], "width": 1, "dash": "dot"}
    fig.add_shape(type="line", x0=0.5, x1=length + 0.6, y0=y, y1=y, line=line)
    right = drawn <= length * 0.65
    x, anchor = (length + 0.4, "right") if right else (0.5, "left")
    short = f"{symbol}{a_day:,.2f} a day"
    for name, text in ((WIDE, f"{short} keeps the budget"), (NARROW, short)):
        fig.add_annotation(name=name, x=x, y=y, xanchor=anchor, yanchor="bottom", text=text, showarrow=False)


def _future(fig: "go.Figure", today: int, length: int, symbol: str, projection: Projection | None) -> None:
    """The days to come are shaded, with what is expected of each."""
    shade = {"fillcolor": PALETTE["--grid"], "opacity": 0.55, "line": {"width": 0}, "layer": "below"}
    fig.add_shape(type="rect", x0=today + 0.5, x1=length + 0.6, yref="paper", y0=0, y1=1, **shade)
    if projection is not None:
        text = f"{symbol}{projection.day_low:,.2f}–{projection.day_high:,.2f} a day expected"
        place = {"x": length + 0.4, "xanchor": "right", "yref": "paper", "y": 0.98, "yanchor": "top"}
        fig.add_annotation(name=WIDE, text=text, showarrow=False, **place)
