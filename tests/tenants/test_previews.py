"""What a month would have cost: exactly what rating it at that price would have made of it."""

import random
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tenants.billing.models import DEFAULT_PLAN, PricePlan, PriorityFactor, RatedUsage, UsageEvent
from tenants.billing.prices.previews import PreviewRow, price_preview
from tenants.billing.usage.selectors import usage_totals
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import TenantFactory, moment
from tests.support.story import Person
from tests.support.usage import close_month, graduated, put_on_plan, set_price, tell, work

pytestmark = pytest.mark.django_db

MAY = date(2026, 5, 1)
START = moment("2026-05-01T00:00:00")
OFFERS: list[dict[str, Any]] = [
    {"shape": "unit", "amount": Decimal("0.07"), "per": 1_000},
    {"shape": "unit", "amount": Decimal(1), "per": 7},  # no decimal fraction: every event is rounded
    {"shape": "package", "amount": Decimal(3), "per": 1_000},
    graduated((500, "0.9"), (3_000, "0.333"), (None, "0")) | {"amount": None, "per": 100},
]


@pytest.fixture
def plan(db: None) -> PricePlan:
    found = PricePlan.objects.get(code=DEFAULT_PLAN)
    PriorityFactor.objects.create(plan=found, priority=9, permille=1333, valid_from=START)
    return found


def preview(plan: PricePlan, offer: dict[str, Any]) -> list[PreviewRow]:
    return price_preview(plan=plan, meter="train.samples", month=MAY, **offer)


def month_of_work(tenants: list[Tenant]) -> list[Any]:
    """Random sizes, priorities, free and foreign meters and months between, in a random order."""
    dice = random.Random(3)
    works = []
    for number in range(120):
        fields: dict[str, Any] = {"event_id": str(number), "priority": dice.choice([5, 9])}
        fields["occurred_at"] = moment(f"2026-05-{dice.randrange(1, 29):02}T12:00:00")
        if number % 10 == 0:
            fields |= {"billable": False, "reason": "redone_after_restart"}
        if number % 11 == 0:
            fields["occurred_at"] = moment("2026-06-01T00:00:00")
        lines = {"train.compute_us": 7} if number % 12 == 0 else {"train.samples": dice.randrange(1, 300)}
        works.append(work(dice.choice(tenants), lines=lines, **fields))
    return works


@pytest.mark.parametrize("offer", OFFERS)
def test_the_month_would_have_cost_what_it_costs_when_that_is_its_price(
    plan: PricePlan, alice: Person, charlie: Person, offer: dict[str, Any]
) -> None:
    tenants = [alice.tenant, charlie.tenant]
    works = month_of_work(tenants)
    with transaction.atomic():  # the same month in a world where the price was this one
        fields = {name: value for name, value in offer.items() if name not in ("amount", "per")}
        amount = str(offer["amount"] or offer["tiers"][0]["amount"])
        set_price("train.samples", amount, per=offer["per"], valid_from=START, **fields)
        tell(*works)
        wanted = {tenant: cost_in_may(tenant) for tenant in tenants}
        transaction.set_rollback(True)
    tell(*works)
    rows = preview(plan, offer)
    assert {row.tenant: row.cost_then for row in rows} == wanted
    assert {row.tenant: row.cost_now for row in rows} == {tenant: cost_in_may(tenant) for tenant in tenants}
    assert all(row.difference == row.cost_then - row.cost_now for row in rows)
    with platform_scope():
        assert UsageEvent.objects.count() == len(works), "nothing is stored"


def cost_in_may(tenant: Tenant) -> Decimal:
    with platform_scope():
        rows = RatedUsage.objects.filter(
            tenant=tenant, event__meter="train.samples", event__occurred_at__lt=moment("2026-06-01T00:00:00")
        )
        return sum((row.amount for row in rows), Decimal(0))


def test_late_usage_counts_in_the_month_it_happened(plan: PricePlan, alice: Person) -> None:
    tell(work(alice.tenant, samples=1_000))
    close_month(alice.tenant, MAY)
    tell(work(alice.tenant, samples=500))
    (row,) = preview(plan, OFFERS[0])
    assert (row.quantity, row.cost_now, row.cost_then) == (1_500, Decimal("0.075"), Decimal("0.105"))


@pytest.mark.parametrize("offer", OFFERS[2:])
def test_units_of_another_plan_use_up_tiers_and_are_not_priced(
    plan: PricePlan, alice: Person, offer: dict[str, Any]
) -> None:
    other = PricePlan.objects.create(code="other", name="Other")
    set_price("train.samples", "1", per=1, valid_from=START, plan="other")
    tell(work(alice.tenant, samples=10))
    put_on_plan(alice.tenant, other, since=moment("2026-05-10T00:00:00"))
    put_on_plan(alice.tenant, plan, since=moment("2026-05-20T00:00:00"))
    tell(work(alice.tenant, samples=5_000, occurred_at=moment("2026-05-15T00:00:00")))
    tell(work(alice.tenant, samples=20, occurred_at=moment("2026-05-25T00:00:00")))
    (row,) = preview(plan, offer)
    first = {"package": Decimal(3), "graduated": Decimal("0.09")}[offer["shape"]]
    assert (row.quantity, row.cost_then) == (30, first), "the last 20 lie in a begun package, or the free tier"
    (own,) = preview(other, OFFERS[0])
    assert own.quantity == 5_000


def test_who_used_nothing_of_the_meter_is_not_listed(plan: PricePlan, alice: Person, charlie: Person) -> None:
    tell(work(alice.tenant), work(charlie.tenant, lines={"train.compute_us": 5}))
    assert [row.tenant for row in preview(plan, OFFERS[0])] == [alice.tenant]
    assert usage_totals(charlie.tenant)[0].line.quantity == 5


def test_an_offer_that_makes_no_sense_is_refused(plan: PricePlan) -> None:
    with pytest.raises(ApplicationError, match="price_invalid"):
        preview(plan, {"shape": "unit", "amount": Decimal(-1), "per": 1})


@pytest.mark.parametrize("offer", OFFERS)
def test_the_number_of_statements_does_not_grow_with_the_tenants(plan: PricePlan, offer: dict[str, Any]) -> None:
    counts = []
    for size in (2, 20):
        tell(*(work(TenantFactory(), samples=number + 1, priority=9) for number in range(size)))
        with CaptureQueriesContext(connection) as queries:
            assert len(preview(plan, offer)) >= size
        counts.append(len(queries))
    assert counts[0] == counts[1]
