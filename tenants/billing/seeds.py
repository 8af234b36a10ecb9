"""The prices every installation starts with: valid from long ago, so that no usage is ever without a price.

Change them by adding a later version (Django's admin), never here.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

VALID_FROM = datetime(2020, 1, 1, tzinfo=UTC)
HOUR_US = 3_600_000_000
# 1.08 per hour is 3e-10 per microsecond: exact in 12 places, so a bill equals quantity times price to the last digit.
DEFAULT_PRICES: tuple[tuple[str, Decimal, int], ...] = (
    ("train.samples", Decimal("0.05"), 1_000),
    ("train.compute_us", Decimal("1.08"), HOUR_US),
    ("predict.chunks", Decimal("0.02"), 1_000),
    ("predict.compute_us", Decimal("1.08"), HOUR_US),
    ("env.steps", Decimal("0.01"), 1_000),
    ("env.compute_us", Decimal("0.108"), HOUR_US),
)


def add_missing_prices(model: Any = None) -> None:
    """Insert the default prices that are not there (idempotent). ``model`` is a migration's historical one."""
    if model is None:
        from tenants.billing.models import PriceVersion as model  # noqa: N813
    for meter, amount, per in DEFAULT_PRICES:
        if not model.objects.filter(meter=meter, valid_from=VALID_FROM).exists():
            model.objects.create(meter=meter, valid_from=VALID_FROM, amount=amount, per=per, currency="EUR")
