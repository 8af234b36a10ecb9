"""Plans: announced ahead, never edited, audited; what is on the books is never priced anew."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenants.audit.models import AuditEvent
from tenants.billing.models import DEFAULT_PLAN, Meter, PricePlan, PriceVersion, RatedUsage, TenantPlan
from tenants.billing.prices.plans import NOTICE, factor_announce, plan_create, price_announce, tenant_plan_set
from tenants.billing.usage.selectors import tenant_cost
from tenants.errors import ApplicationError
from tenants.models import User
from tenants.scope import platform_scope
from tests.support.factories import UserFactory, moment
from tests.support.story import Person
from tests.support.threads import all_at_once
from tests.support.usage import ingest

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(db: None) -> User:
    return UserFactory(email="olga@example.org", is_staff=True)


@pytest.fixture
def plan(db: None) -> PricePlan:
    return PricePlan.objects.get(code=DEFAULT_PLAN)


def soon(**later: float) -> datetime:
    return timezone.now() + NOTICE + timedelta(seconds=30) + timedelta(**later)


def announce(by: User, plan: PricePlan, **changes: Any) -> PriceVersion:
    values = {
        "meter": "train.samples",
        "shape": "unit",
        "amount": Decimal("0.06"),
        "per": 1_000,
        "valid_from": soon(),
        "expected_version": plan.version,
    }
    return price_announce(by=by, plan=plan, **values | changes)


def audited(verb: str) -> AuditEvent:
    with platform_scope():
        return AuditEvent.objects.get(verb=verb)


def test_an_announced_price_raises_the_plans_version_and_is_audited(operator: User, plan: PricePlan) -> None:
    version = announce(operator, plan, reason="The new contract for power.")
    plan.refresh_from_db()
    assert (plan.version, version.currency, version.created_by) == (2, "EUR", operator)
    told = audited("price.announced")
    assert (told.tenant, told.actor_name, told.reason) == (None, operator.email, "The new contract for power.")
    assert (told.before["amount"], told.after["amount"]) == ("0.050000000000", "0.06")


def test_who_saw_an_older_version_of_the_plan_changes_nothing(operator: User, plan: PricePlan) -> None:
    announce(operator, plan)
    with pytest.raises(ApplicationError) as caught:
        announce(operator, plan, expected_version=1, valid_from=soon(days=1))
    assert (caught.value.code, caught.value.status) == ("precondition_failed", 412)
    assert PriceVersion.objects.filter(meter="train.samples").count() == 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"meter": "train.luck"}, "unknown_meter"),
        ({"valid_from": moment("2026-01-01T00:00:00")}, "starts_too_soon"),
        ({"shape": "volume"}, "price_invalid"),
        ({"shape": "graduated", "amount": None, "tiers": [{"up_to": 5, "amount": "1"}]}, "tiers_invalid"),
    ],
)
def test_a_price_that_cannot_be_is_refused_and_the_plan_stays(
    operator: User, plan: PricePlan, changes: dict[str, Any], code: str
) -> None:
    with pytest.raises(ApplicationError) as caught:
        announce(operator, plan, **changes)
    assert (caught.value.code, caught.value.status) == (code, 422)
    plan.refresh_from_db()
    assert plan.version == 1


def test_a_price_starts_later_than_any_usage_that_may_already_be_told(operator: User, plan: PricePlan) -> None:
    with pytest.raises(ApplicationError, match="starts_too_soon"):
        announce(operator, plan, valid_from=timezone.now() + NOTICE - timedelta(seconds=1))


def test_two_prices_cannot_start_at_once(operator: User, plan: PricePlan) -> None:
    start = soon()
    announce(operator, plan, valid_from=start)
    with pytest.raises(ApplicationError) as caught:
        announce(operator, plan, valid_from=start, amount=Decimal(9), expected_version=2)
    assert (caught.value.code, caught.value.status) == ("price_exists", 409)


def test_a_factor_is_announced_like_a_price(operator: User, plan: PricePlan) -> None:
    values = {"by": operator, "plan": plan, "priority": 9, "permille": 1500, "valid_from": soon()}
    factor = factor_announce(**values, expected_version=1)
    assert (factor.priority, factor.permille) == (9, 1500)
    assert audited("factor.announced").after["permille"] == 1500
    with pytest.raises(ApplicationError, match="factor_exists"):
        factor_announce(**values, expected_version=2)
    for changes in ({"priority": 10}, {"permille": 0}, {"valid_from": timezone.now()}):
        with pytest.raises(ApplicationError) as caught:
            factor_announce(**values | changes, expected_version=2)
        assert caught.value.status == 422


def test_a_new_plan_may_begin_with_the_prices_of_another(operator: User, plan: PricePlan) -> None:
    copied = plan_create(by=operator, code="academic", name="Academic", currency="EUR", copy_of=plan)
    own = {row.meter: (row.amount, row.per) for row in copied.prices.all()}
    assert own == {row.meter: (row.amount, row.per) for row in plan.prices.all()}
    assert audited("plan.created").after["copy_of"] == "standard"
    with pytest.raises(ApplicationError, match="plan_exists"):
        plan_create(by=operator, code="academic", name="Again", currency="EUR")
    with pytest.raises(ApplicationError, match="currency_differs"):
        plan_create(by=operator, code="dollars", name="Dollars", currency="USD", copy_of=plan)
    with pytest.raises(ApplicationError, match="currency_unknown"):
        plan_create(by=operator, code="shells", name="Shells", currency="XXX")


def test_a_tenant_changes_plan_at_a_moment_and_the_move_is_audited(
    operator: User, plan: PricePlan, alice: Person
) -> None:
    academic = plan_create(by=operator, code="academic", name="Academic", currency="EUR", copy_of=plan)
    start = soon()
    tenant_plan_set(by=operator, tenant=alice.tenant, plan=academic, valid_from=start, reason="University.")
    told = audited("plan.assigned")
    assert (told.tenant, told.before, told.after["plan"]) == (alice.tenant, {"plan": "standard"}, "academic")
    with pytest.raises(ApplicationError, match="plan_exists"):
        tenant_plan_set(by=operator, tenant=alice.tenant, plan=plan, valid_from=start)
    with platform_scope():
        assert TenantPlan.objects.count() == 1


def test_a_plan_must_be_in_the_tenants_currency_have_every_price_and_start_later(
    operator: User, plan: PricePlan, alice: Person
) -> None:
    empty = plan_create(by=operator, code="empty", name="Empty", currency="EUR")
    dollars = plan_create(by=operator, code="dollars", name="Dollars", currency="USD")
    for wrong, start, code in (
        (empty, soon(), "plan_incomplete"),
        (dollars, soon(), "currency_differs"),
        (plan, timezone.now(), "starts_too_soon"),
    ):
        with pytest.raises(ApplicationError) as caught:
            tenant_plan_set(by=operator, tenant=alice.tenant, plan=wrong, valid_from=start)
        assert (caught.value.code, caught.value.status) == (code, 422)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["train.samples", "train.compute_us"]), st.integers(0, 10**6), st.integers(0, 5)),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=CHANGES)
def test_whatever_is_announced_the_past_keeps_its_price(
    operator: User, plan: PricePlan, alice: Person, changes: list[tuple[str, int, int]]
) -> None:
    """Usage is told, prices change, the same is told again and more of the same moment comes late."""
    happened = {"occurred_at": timezone.now() - timedelta(minutes=1), "samples": 1_234, "compute_us": 777}
    PricePlan.objects.filter(pk=plan.pk).update(version=1)
    before = tenant_cost(alice.tenant).amount
    (first, *_) = ingest(alice.tenant, event_id="first", source=str(happened["occurred_at"]), **happened)
    told = tenant_cost(alice.tenant).amount - before
    start = PriceVersion.objects.order_by("-valid_from")[0].valid_from
    for number, (meter, amount, days) in enumerate(changes):
        start = max(start, soon()) + timedelta(days=days, microseconds=1)
        announce(
            operator,
            plan,
            meter=meter,
            amount=Decimal(amount) / 1000,
            valid_from=start,
            expected_version=number + 1,
        )
    ingest(alice.tenant, event_id="first", job_id=first.job_id, source=str(happened["occurred_at"]), **happened)
    assert tenant_cost(alice.tenant).amount - before == told
    ingest(alice.tenant, event_id="late", source=str(happened["occurred_at"]), **happened)
    assert tenant_cost(alice.tenant).amount - before == 2 * told


def test_every_meter_has_a_price_from_the_start() -> None:
    priced = set(PriceVersion.objects.filter(plan__code=DEFAULT_PLAN).values_list("meter", flat=True))
    assert priced == set(Meter.values)


def test_raising_a_price_leaves_what_was_rated_untouched(operator: User, plan: PricePlan, alice: Person) -> None:
    ingest(alice.tenant, samples=1_000)
    with platform_scope():
        rows = list(RatedUsage.objects.values_list("pk", "amount", "price_id"))
    announce(operator, plan, amount=Decimal(500))
    with platform_scope():
        assert list(RatedUsage.objects.values_list("pk", "amount", "price_id")) == rows


@pytest.mark.django_db(transaction=True)
def test_of_operators_who_saw_the_same_version_one_changes_it() -> None:
    olga, plan, start = UserFactory(is_staff=True), PricePlan.objects.get(code=DEFAULT_PLAN), soon()
    outcomes = all_at_once(lambda number: announce(olga, plan, valid_from=start + timedelta(days=number)), count=4)
    refused = [outcome for outcome in outcomes if isinstance(outcome, ApplicationError)]
    assert [error.code for error in refused] == ["precondition_failed"] * 3
    plan.refresh_from_db()
    assert (plan.version, plan.prices.filter(meter="train.samples").count()) == (2, 2)
