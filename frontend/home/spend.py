"""Spend by day of this month as a small figure."""

from calendar import monthrange
from datetime import date
from decimal import Decimal
from typing import Any

from frontend.figures import PALETTE, figure_json, service_colour
from frontend.templatetags.console import currency_sign
from frontend.usage.month import Month


def spend_figure(month: Month, currency: str) -> dict[str, Any]:
    """One bar a UTC day, and a line at what would keep the budget. For ``console/parts/figures.html``."""
    import plotly.graph_objects as go

    length = monthrange(month.start.year, month.start.month)[1]
    symbol, days, sums = currency_sign(currency), list(range(1, length + 1)), _by_day(month)
    bars = go.Bar(
        x=days,
        y=[float(sums.get(day, 0)) for day in days],
        marker={"color": service_colour("training")},
        hovertemplate=f"{symbol}%{{y:,.2f}}, day %{{x}}<extra></extra>",
    )
    fig = go.Figure([bars])
    fig.update_xaxes(range=[0.3, length + 0.7], tickvals=[1, 8, 15, 22, 29])
    fig.update_yaxes(tickprefix=symbol)
    fig.update_layout(margin={"l": 46, "r": 14, "t": 14, "b": 26})
    if month.budget is not None:
        _line(fig, float(month.budget.budget.amount / length), symbol, length)
    return figure_json(fig, height="s")


def _by_day(month: Month) -> dict[int, Decimal]:
    sums: dict[int, Decimal] = {}
    for total in month.totals:
        if isinstance(total.group, date):
            sums[total.group.day] = sums.get(total.group.day, Decimal(0)) + total.line.amount
    return sums


def _line(fig: Any, a_day: float, symbol: str, length: int) -> None:
    line = {"color": PALETTE["--ink-3"], "width": 1, "dash": "dot"}
    fig.add_shape(type="line", x0=0.3, x1=length + 0.7, y0=a_day, y1=a_day, line=line)
    text = f"{symbol}{a_day:,.2f} a day"
    fig.add_annotation(x=length + 0.5, y=a_day, xanchor="right", yanchor="bottom", text=text, showarrow=False)
