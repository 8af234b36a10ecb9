"""When a calendar month can be closed: its end, and the grace in which late events still go on its own invoice."""

from datetime import UTC, date, datetime, time, timedelta

from tenants.billing.usage.periods import month_after, month_of

GRACE = timedelta(hours=72)


def closable_at(month: date) -> datetime:
    """From when on a month can be closed."""
    return datetime.combine(month_after(month), time.min, UTC) + GRACE


def newest_closable(now: datetime) -> date:
    """The newest month whose grace is over."""
    in_it = month_of(now - GRACE) - timedelta(days=1)
    return in_it.replace(day=1)
