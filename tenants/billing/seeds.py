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
    ("storage.byte_hours", Decimal("0.00003"), 10**9),
)


DEFAULT_PLAN_NAME = "Standard"


def add_missing_prices(plans: Any = None, versions: Any = None) -> None:
    """Insert the default plan and the default prices that are not there (idempotent).

    ``plans`` and ``versions`` are a migration's historical models.
    """
    if plans is None or versions is None:
        from tenants.billing.models import PricePlan as plans  # noqa: N813
        from tenants.billing.models import PriceVersion as versions  # noqa: N813
    plan, _ = plans.objects.get_or_create(code="standard", defaults={"name": DEFAULT_PLAN_NAME})
    for meter, amount, per in DEFAULT_PRICES:
        if not versions.objects.filter(plan=plan, meter=meter, valid_from=VALID_FROM).exists():
            versions.objects.create(
                plan=plan, meter=meter, valid_from=VALID_FROM, amount=amount, per=per, currency=plan.currency
            )
