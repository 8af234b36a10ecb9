"""Usage is rated by the tenant's plan, the shape of its price and the job's priority, at the moment it happened."""

import random
from decimal import Decimal

import pytest

from tenants.billing.models import MeterTotal, PricePlan, PriorityFactor, RatedUsage
from tenants.billing.prices.pricing import charge
from tenants.billing.prices.quotes import quote
from tenants.billing.prices.tariffs import price_of
from tenants.billing.usage.selectors import job_cost, tenant_cost
from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import moment
from tests.support.prices import complete_plan
from tests.support.story import Person
from tests.support.usage import JOB, close_month, graduated, put_on_plan, set_price, tell, work

pytestmark = pytest.mark.django_db

MAY = moment("2026-05-01T00:00:00")
TIERS = graduated((1_000, "0.50"), (None, "0.10"))  # per 100 samples


def amounts(tenant: Tenant) -> list[Decimal]:
    with platform_scope():
        return list(RatedUsage.objects.filter(tenant=tenant).order_by("event_id").values_list("amount", flat=True))


def total(tenant: Tenant) -> int:
    with platform_scope():
        return MeterTotal.objects.get(tenant=tenant, meter="train.samples", month=MAY.date()).quantity


def test_tiers_count_over_events_and_batches_of_the_month(alice: Person) -> None:
    set_price("train.samples", "0.50", per=100, valid_from=MAY, **TIERS)
    tell(work(alice.tenant, samples=900), work(alice.tenant, samples=200))
    tell(work(alice.tenant, samples=100))
    assert amounts(alice.tenant) == [Decimal("4.5"), Decimal("0.6"), Decimal("0.1")]
    assert total(alice.tenant) == 1_200


def test_a_new_month_and_another_tenant_begin_at_the_first_tier(alice: Person, charlie: Person) -> None:
    set_price("train.samples", "0.50", per=100, valid_from=MAY, **TIERS)
    june = moment("2026-06-01T00:00:00")
    tell(
        work(alice.tenant, samples=2_000),
        work(alice.tenant, samples=100, occurred_at=june),
        work(charlie.tenant, samples=100),
    )
    assert amounts(alice.tenant)[1] == amounts(charlie.tenant)[0] == Decimal("0.5")


def test_a_package_is_paid_when_it_is_begun(alice: Person) -> None:
    set_price("train.samples", "2", per=1_000, valid_from=MAY, shape="package")
    tell(*(work(alice.tenant, samples=samples) for samples in (1, 999, 1, 2_000)))
    assert amounts(alice.tenant) == [2, 0, 2, 4]


def test_free_work_uses_up_no_tier(alice: Person) -> None:
    set_price("train.samples", "0.50", per=100, valid_from=MAY, **TIERS)
    free = work(alice.tenant, samples=5_000, billable=False, reason="redone_after_restart")
    tell(free, work(alice.tenant, samples=1_000))
    assert amounts(alice.tenant) == [0, 5]
    assert total(alice.tenant) == 1_000


def test_units_before_a_change_of_shape_in_the_month_count(alice: Person) -> None:
    noon = moment("2026-05-10T12:00:00")
    set_price("train.samples", "0.50", per=100, valid_from=noon, **TIERS)
    tell(work(alice.tenant, samples=900))
    tell(work(alice.tenant, samples=200, occurred_at=noon))
    assert amounts(alice.tenant)[1] == Decimal("0.6")


@pytest.mark.parametrize("shape", [TIERS, {"shape": "package"}])
def test_a_month_costs_the_same_in_any_order_and_any_batches(
    alice: Person, charlie: Person, shape: dict[str, object]
) -> None:
    version = set_price("train.samples", "0.50", per=100, valid_from=MAY, **shape)
    dice = random.Random(7)
    parts = [dice.randrange(1, 400) for _ in range(40)]
    tell(*(work(alice.tenant, samples=part) for part in parts))
    dice.shuffle(parts)
    while parts:
        size = dice.randrange(1, 9)
        tell(*(work(charlie.tenant, samples=part) for part in parts[:size]))
        del parts[:size]
    whole = charge(price_of(version), total(alice.tenant))
    assert sum(amounts(alice.tenant)) == sum(amounts(charlie.tenant)) == whole


def test_late_usage_of_a_closed_month_still_counts_in_the_tiers_of_that_month(alice: Person) -> None:
    set_price("train.samples", "0.50", per=100, valid_from=MAY, **TIERS)
    tell(work(alice.tenant, samples=1_000))
    close_month(alice.tenant, MAY.date())
    tell(work(alice.tenant, samples=100))
    assert amounts(alice.tenant) == [5, Decimal("0.1")]


def test_the_plan_at_the_moment_counts_and_others_stay_on_the_standard_one(alice: Person, charlie: Person) -> None:
    cheap = PricePlan.objects.create(code="cheap", name="Cheap")
    set_price("train.samples", "0.01", per=1_000, valid_from=MAY, plan="cheap")
    put_on_plan(alice.tenant, cheap, since=moment("2026-05-02T00:00:00"))
    put_on_plan(alice.tenant, PricePlan.objects.get(code="standard"), since=moment("2026-05-03T00:00:00"))
    for day in (1, 2, 3):
        tell(work(alice.tenant, samples=1_000, occurred_at=moment(f"2026-05-0{day}T12:00:00")))
    tell(work(charlie.tenant, samples=1_000, occurred_at=moment("2026-05-02T12:00:00")))
    assert amounts(alice.tenant) == [Decimal("0.05"), Decimal("0.01"), Decimal("0.05")]
    assert amounts(charlie.tenant) == [Decimal("0.05")]


def test_a_plan_without_the_price_of_a_meter_stores_nothing(alice: Person) -> None:
    put_on_plan(alice.tenant, PricePlan.objects.create(code="empty", name="Empty"), since=MAY)
    with pytest.raises(ApplicationError, match=r"No price of 'train.samples' .* in the plan 'empty'"):
        tell(work(alice.tenant))
    assert amounts(alice.tenant) == []


def test_a_priority_pays_its_factor_of_the_moment(alice: Person) -> None:
    plan = PricePlan.objects.get(code="standard")
    PriorityFactor.objects.create(plan=plan, priority=9, permille=1500, valid_from=moment("2026-05-02T00:00:00"))
    PriorityFactor.objects.create(plan=plan, priority=9, permille=3000, valid_from=moment("2026-05-03T00:00:00"))
    for day in (1, 2, 3):
        at = moment(f"2026-05-0{day}T12:00:00")
        tell(
            work(alice.tenant, samples=1_000, priority=9, occurred_at=at),
            work(alice.tenant, samples=1_000, occurred_at=at),
        )
    five = Decimal("0.05")
    assert amounts(alice.tenant) == [five, five, Decimal("0.075"), five, Decimal("0.15"), five]
    with platform_scope():
        factors = RatedUsage.objects.order_by("event_id").values_list("factor_permille", flat=True)
        assert list(factors) == [1000, 1000, 1500, 1000, 3000, 1000]


def test_a_quote_is_what_the_same_usage_then_costs(alice: Person) -> None:
    set_price("train.samples", "0.50", per=100, valid_from=MAY, **TIERS)
    plan = PricePlan.objects.get(code="standard")
    PriorityFactor.objects.create(plan=plan, priority=8, permille=1250, valid_from=MAY)
    tell(work(alice.tenant, samples=900))
    at, lines = moment("2026-05-20T00:00:00"), {"train.samples": 333, "train.compute_us": 1_234_567}
    quoted = quote(alice.tenant, lines, priority=8, at=at)
    before = tenant_cost(alice.tenant).amount
    tell(work(alice.tenant, lines=lines, priority=8, occurred_at=at))
    assert tenant_cost(alice.tenant).amount - before == quoted.amount
    assert (quoted.permille, quoted.currency) == (1250, "EUR")
    assert quoted.amount == sum(line.amount for line in quoted.lines)
    assert [line.meter for line in quoted.lines] == list(lines)


def test_there_is_no_quote_in_a_currency_that_is_not_the_tenants(alice: Person) -> None:
    alice.tenant.currency = "USD"
    with pytest.raises(ApplicationError, match="the tenant's currency is USD"):
        quote(alice.tenant, {"train.samples": 1}, priority=5, at=MAY)


def test_an_amount_beyond_reason_is_refused_and_its_neighbours_are_not(
    alice: Person, caplog: pytest.LogCaptureFixture
) -> None:
    set_price("train.samples", "999999", per=1, valid_from=MAY)
    result = tell(work(alice.tenant, samples=1), work(alice.tenant, lines={"train.compute_us": 1}))
    assert [refusal.code for refusal in result.refused] == ["usage_implausible"]
    assert "refused" in caplog.text
    assert [line.meter for line in job_cost(alice.tenant, JOB).lines] == ["train.compute_us"]


def test_a_tenant_whose_plan_is_in_another_currency_keeps_nobody_elses_usage(
    alice: Person, charlie: Person, caplog: pytest.LogCaptureFixture
) -> None:
    """No service lets it come to this; whoever writes to the database past them stops one tenant, not all."""
    put_on_plan(alice.tenant, complete_plan("dollars", currency="USD", since=MAY, amount="1"), since=MAY)
    told = [work(alice.tenant, samples=1), work(charlie.tenant, samples=1_000)]
    result = tell(*told)
    assert [(one.tenant_id, one.code) for one in result.refused] == [(alice.tenant.pk, "usage_foreign_currency")]
    assert "in a currency its tenant does not pay in" in caplog.text
    assert (amounts(alice.tenant), amounts(charlie.tenant)) == ([], [Decimal("0.05")])
    Tenant.objects.filter(pk=alice.tenant.pk).update(currency="USD")
    assert tell(*told).refused == (), "told again once it is mended, it counts"
    assert (amounts(alice.tenant), amounts(charlie.tenant)) == ([Decimal(1)], [Decimal("0.05")])


def test_tiers_a_priority_and_a_change_of_plan_in_mid_month_together(alice: Person) -> None:
    """15 units: ten in the first plan's dear tier at half price, then five beyond the other plan's tenth."""
    standard = PricePlan.objects.get(code="standard")
    set_price("train.samples", "2", per=1, valid_from=MAY, **graduated((10, "2"), (None, "1")))
    other = PricePlan.objects.create(code="other", name="Other")
    set_price("train.samples", "4", per=1, valid_from=MAY, plan="other", **graduated((10, "4"), (None, "3")))
    for plan, permille in ((standard, 500), (other, 2_000)):
        PriorityFactor.objects.create(plan=plan, priority=9, permille=permille, valid_from=MAY)
    put_on_plan(alice.tenant, other, since=moment("2026-05-15T00:00:00"))
    free = {"billable": False, "reason": "redone_after_restart"}
    tell(
        work(alice.tenant, samples=10, priority=9, occurred_at=moment("2026-05-14T23:59:59")),
        work(alice.tenant, samples=99, priority=9, occurred_at=moment("2026-05-15T00:00:00"), **free),
        work(alice.tenant, samples=5, priority=9, occurred_at=moment("2026-05-15T00:00:00")),
    )
    assert amounts(alice.tenant) == [Decimal(10), Decimal(0), Decimal(30)]
