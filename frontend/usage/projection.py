"""What a month will come to, as a range, and how that is reckoned. Pure: the days and the moment are arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from tenants.billing.usage.periods import month_after, month_of

SPANS = (3, 7, 28)  # days whose means are the range


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """``low`` to ``high`` for the whole month; ``day_low`` to ``day_high`` a day for the ``days_left`` days."""

    low: Decimal
    high: Decimal
    day_low: Decimal
    day_high: Decimal
    days_left: Decimal
    days_known: int  # complete days it is reckoned from


def projected(money: Mapping[date, Decimal], now: datetime, *, since: date | None = None) -> Projection | None:
    """The month of ``now``: what is spent, plus a day's mean for every day left.

    The range is between the smallest and the largest of the means over the last 3, 7 and 28 complete UTC days, as far
    as they go back: days before the first with usage do not count. None before one whole day has passed. ``since``:
    that first day; without it, the first of ``money``, which may hold only what was used lately.
    """
    today, month = now.astimezone(UTC).date(), month_of(now)
    first = since or min(money, default=today)
    days = [day for back in range(1, max(SPANS) + 1) if (day := today - timedelta(days=back)) >= first]
    if not days:
        return None
    means = [_mean([money.get(day, Decimal(0)) for day in days[:span]]) for span in SPANS]
    end = datetime.combine(month_after(month), time.min, UTC)
    days_left = Decimal(int((end - now).total_seconds())) / Decimal(86_400)
    spent = sum((amount for day, amount in money.items() if day >= month), Decimal(0))
    return Projection(
        low=spent + days_left * min(means),
        high=spent + days_left * max(means),
        day_low=min(means),
        day_high=max(means),
        days_left=days_left,
        days_known=len(days),
    )


def _mean(amounts: list[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0)) / len(amounts)
