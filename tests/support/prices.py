"""Price plans of any currency."""

from datetime import datetime
from decimal import Decimal

from tenants.billing.models import Meter, PricePlan, PriceVersion


def complete_plan(code: str, *, currency: str, since: datetime, amount: str, but: str = "") -> PricePlan:
    """A plan in which a unit of every meter costs the same; ``but``: the meter that has no price."""
    plan = PricePlan.objects.create(code=code, name=code, currency=currency)
    for meter in Meter.values:
        if meter != but:
            PriceVersion.objects.create(
                plan=plan, meter=meter, valid_from=since, amount=Decimal(amount), per=1, currency=currency
            )
    return plan
