"""What things cost: plans, their append-only price versions, and which plan a tenant is on since when."""

from django.db import models

from tenants.append_only import AppendOnly
from tenants.billing.models.usage import Meter
from tenants.billing.money import MoneyField, plain
from tenants.models.tenant import DEFAULT_CURRENCY
from tenants.scope import TenantOwned

DEFAULT_PLAN = "standard"


class PricePlan(models.Model):
    """A price list. Prices of the plan are its versions; a tenant without a plan of its own is on the default one."""

    code = models.SlugField(unique=True)
    name = models.CharField(max_length=200)
    currency = models.CharField(max_length=3, default=DEFAULT_CURRENCY)
    version = models.PositiveIntegerField(default=1)  # for ETag: rises with every announced price
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class PriceShape(models.TextChoices):
    """How a quantity becomes money. Tiers and packages count per tenant, meter and calendar month (UTC)."""

    UNIT = "unit"  # quantity x amount / per
    GRADUATED = "graduated"  # each tier's own amount for the units that fall into it
    PACKAGE = "package"  # amount for each begun package of ``per`` units


class PriceVersion(AppendOnly):
    """The price of a meter in a plan from ``valid_from`` on, until a later version takes over.

    ``tiers`` (graduated only): [{"up_to": 1000000, "amount": "0.05"}, ..., {"up_to": null, "amount": "0.03"}], amounts
    per ``per`` units, bounds rising, the last one null. ``amount`` is then the first tier's.
    """

    plan = models.ForeignKey(PricePlan, on_delete=models.PROTECT, related_name="prices")
    meter = models.CharField(max_length=40, choices=Meter.choices)
    valid_from = models.DateTimeField()
    shape = models.CharField(max_length=20, choices=PriceShape.choices, default=PriceShape.UNIT)
    amount = MoneyField()
    per = models.PositiveBigIntegerField()
    tiers = models.JSONField(default=list)
    currency = models.CharField(max_length=3, default=DEFAULT_CURRENCY)
    created_by = models.ForeignKey("tenants.User", on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "meter", "valid_from"], name="one_price_per_moment"),
            models.CheckConstraint(condition=models.Q(per__gte=1) & models.Q(amount__gte=0), name="price_sane"),
        ]

    def __str__(self) -> str:
        return f"{plain(self.amount)} {self.currency} per {self.per} {self.meter}"


class PriorityFactor(AppendOnly):
    """Jobs of this priority pay ``permille`` thousandths of the price from ``valid_from`` on. No row: 1000."""

    plan = models.ForeignKey(PricePlan, on_delete=models.PROTECT, related_name="factors")
    priority = models.PositiveSmallIntegerField()
    permille = models.PositiveIntegerField()
    valid_from = models.DateTimeField()
    created_by = models.ForeignKey("tenants.User", on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "priority", "valid_from"], name="one_factor_per_moment"),
            models.CheckConstraint(condition=models.Q(priority__lte=9), name="factor_of_a_priority"),
        ]


class TenantPlan(TenantOwned, AppendOnly):
    """The plan of a tenant from ``valid_from`` on, until a later row: two plans can never overlap."""

    plan = models.ForeignKey(PricePlan, on_delete=models.PROTECT, related_name="+")
    valid_from = models.DateTimeField()
    created_by = models.ForeignKey("tenants.User", on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "valid_from"], name="one_plan_per_moment")]
