"""What a quantity of work would cost a tenant now: the price, the priority's factor and the month so far."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from tenants.billing.models import MeterTotal, PriceVersion
from tenants.billing.prices.pricing import charge
from tenants.billing.prices.tariffs import Tariffs
from tenants.billing.usage.periods import month_of
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteLine:
    """One meter of a quote. ``version`` is the price it is reckoned with, ``amount`` has 12 places."""

    meter: str
    quantity: int
    version: PriceVersion
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """``amount == sum(line.amount)``, in the currency of the tenant's plan; ``permille`` is the priority's factor."""

    amount: Decimal
    currency: str
    permille: int
    lines: tuple[QuoteLine, ...]


def quote(tenant: Tenant, quantities: Mapping[str, int], *, priority: int, at: datetime) -> Quote:
    """Price these quantities (meter -> units) as if they were used at ``at``, after what the month has already.

    Writes nothing and promises nothing: usage is rated when it happens. Raises ApplicationError ``no_price``.
    """
    with platform_scope():
        tariffs = Tariffs([tenant.pk], quantities)
        rows = MeterTotal.objects.filter(tenant=tenant, month=month_of(at), meter__in=list(quantities))
        before = {row.meter: row.quantity for row in rows}
    plan = tariffs.plan_at(tenant.pk, at)
    if plan.currency != tenant.currency:
        raise ApplicationError(
            code="no_price",
            status=409,
            detail=f"The plan {plan.code!r} is in {plan.currency}, the tenant's currency is {tenant.currency}.",
        )
    permille = tariffs.permille_at(plan.pk, priority, at)
    lines = []
    for meter, quantity in quantities.items():
        version = tariffs.version_at(tenant.pk, meter, at)
        amount = charge(tariffs.price(version), quantity, before=before.get(meter, 0), permille=permille)
        lines.append(QuoteLine(meter=meter, quantity=quantity, version=version, amount=amount))
    total = sum((line.amount for line in lines), Decimal(0))
    return Quote(amount=total, currency=plan.currency, permille=permille, lines=tuple(lines))
