"""Calendar months, UTC."""

from datetime import date

from django.utils import timezone


def this_month() -> date:
    """Its first day."""
    return timezone.now().date().replace(day=1)


def month_after(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)
