"""Billing under random histories, and violations planted on purpose that the same checks must catch."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tenants.billing.invoices import services as invoices
from tenants.billing.ledger import capture
from tenants.billing.usage import batches, rating
from tenants.billing.usage.periods import LockedPeriods
from tests.support.billing_department import METERS, SAMPLES, STEPS, BillingDepartment

which_tenant, which_one = st.integers(0, 1), st.integers(0, 99)
prices = st.decimals(min_value="0.001", max_value="2", places=7)
cents = st.integers(1, 500).map(lambda count: Decimal(count) / 100)


class BillingMachine(RuleBasedStateMachine):
    """Any order of reserving, telling, repeating, re-pricing, closing, crediting and correcting."""

    def __init__(self) -> None:
        super().__init__()
        self.shop = BillingDepartment()

    def teardown(self) -> None:
        self.shop.close_down()

    @invariant()
    def the_books_are_right(self) -> None:
        self.shop.check()

    @rule(which=which_tenant, budget=st.sampled_from(["0", "0.25", "1"]), priority=st.sampled_from([5, 9]))
    def submit(self, which: int, budget: str, priority: int) -> None:
        self.shop.submit(which, budget, priority)

    @precondition(lambda self: self.shop.jobs)
    @rule(
        job=which_one,
        quantities=st.lists(st.integers(0, 30_000), min_size=1, max_size=4),
        meters=st.sets(st.sampled_from(METERS), min_size=1),
        billable=st.sampled_from([True, True, True, False]),
    )
    def happen(self, job: int, quantities: list[int], meters: set[str], billable: bool) -> None:
        self.shop.happen(job, quantities, meters, billable=billable)

    @precondition(lambda self: self.shop.pending)
    @rule(data=st.data(), repeats=st.integers(0, 3))
    def tell(self, data: st.DataObject, repeats: int) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.shop.pending), unique_by=id, min_size=1))
        again = self.shop.delivered[-repeats:] if repeats else []
        self.shop.tell(data.draw(st.permutations([*chosen, *again])))

    @precondition(lambda self: self.shop.delivered)
    @rule(known=which_one)
    def contradict(self, known: int) -> None:
        self.shop.contradict(self.shop.delivered[known % len(self.shop.delivered)])

    @precondition(lambda self: self.shop.jobs)
    @rule(job=which_one)
    def end(self, job: int) -> None:
        self.shop.end(job)

    @rule(hours=st.sampled_from([1, 30, 24 * 9, 24 * 25]))
    def wait(self, hours: int) -> None:
        self.shop.wait(hours=hours)

    @rule(
        meter=st.sampled_from([SAMPLES, STEPS]),
        shape=st.sampled_from(["unit", "graduated", "package"]),
        amounts=st.tuples(prices, prices),
        per=st.sampled_from([1000, 700]),
        up_to=st.integers(1, 40_000),
    )
    def announce_price(self, meter: str, shape: str, amounts: tuple[Decimal, Decimal], per: int, up_to: int) -> None:
        self.shop.announce_price(meter, shape, amounts, per=per, up_to=up_to)

    @rule(permille=st.sampled_from([800, 1000, 1500]))
    def announce_factor(self, permille: int) -> None:
        self.shop.announce_factor(permille)

    @rule(which=which_tenant)
    def change_plan(self, which: int) -> None:
        self.shop.change_plan(which)

    @rule(which=which_tenant, amount=cents, grant=st.booleans())
    def pay_in(self, which: int, amount: Decimal, grant: bool) -> None:
        self.shop.pay_in(which, amount, grant=grant)

    @rule(which=which_tenant, months_ago=st.integers(1, 3))
    def close(self, which: int, months_ago: int) -> None:
        self.shop.close(which, months_ago=months_ago)

    @rule(act=st.sampled_from(["correct", "settle", "void"]), which=which_one)
    def after_the_invoice(self, act: str, which: int) -> None:
        final = self.shop.final_invoices()
        if final:
            getattr(self.shop, act)(final[which % len(final)])


@pytest.mark.django_db
@pytest.mark.slow
def test_the_books_are_right_after_any_history(caplog: pytest.LogCaptureFixture):
    caplog.set_level("CRITICAL")
    histories = settings(
        max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    run_state_machine_as_test(BillingMachine, settings=histories)


def a_year_in_short(shop: BillingDepartment) -> None:
    """One history with everything in it; the books are checked after every act."""
    acts: list[Callable[[], object]] = [
        lambda: shop.submit(0),
        lambda: shop.submit(1, "1", 9),
        lambda: shop.announce_price(SAMPLES, "graduated", (Decimal("0.05"), Decimal("0.02")), per=1000, up_to=20_000),
        lambda: shop.announce_factor(1500),
        lambda: shop.wait(hours=3),
        lambda: shop.happen(0, [15_000, 700], METERS),
        lambda: shop.happen(1, [15_000, 9_000], [SAMPLES]),
        lambda: shop.tell(shop.pending[::-1]),
        lambda: shop.happen(0, [16_000]),
        lambda: shop.happen(1, [40_000], METERS),
        lambda: shop.announce_price(SAMPLES, "package", (Decimal("2"),), per=5_000),
        lambda: shop.wait(hours=24 * 9),
        lambda: shop.tell([*shop.delivered[:2], *shop.pending]),
        lambda: shop.happen(0, [100], billable=False),
        lambda: shop.happen(0, [123, 4_567]),
        lambda: shop.contradict(shop.delivered[0]),
        lambda: shop.wait(hours=24 * 9),
        lambda: shop.end(1),
        lambda: shop.close(0),
        lambda: shop.close(1),
        lambda: shop.tell(shop.pending),  # of a month that is closed
        lambda: shop.settle(shop.final_invoices()[0]),
        lambda: shop.pay_in(0, Decimal("0.40"), grant=True),
        lambda: shop.wait(hours=24 * 30),
        lambda: shop.close(0),
        lambda: shop.correct(shop.final_invoices()[0]),
        lambda: shop.void(shop.final_invoices()[-1]),
        lambda: shop.close(0),
    ]
    for act in acts:
        act()
        shop.check()


@pytest.fixture
def shop(db: None):
    shop = BillingDepartment()
    yield shop
    shop.close_down()


def test_the_short_year_is_right_and_has_everything_in_it(shop: BillingDepartment):
    a_year_in_short(shop)
    assert len(shop.final_invoices()) == 3
    assert any(line.month != line.invoiced_in for line in shop.oracle.owed)


def _bill_repeats(works: Any, source: str, refused: Any) -> list[Any]:
    """What is told twice counts twice, under another name."""
    fresh, seen = [], set()
    for work in works:
        if work.key in seen or batches.UsageEvent.objects.filter(event_id=work.event_id).exists():
            fields = {name: getattr(work, name) for name in type(work).__dataclass_fields__}
            work = type(work)(**fields | {"event_id": work.event_id + "+"})
        seen.add(work.key)
        fresh.append(work)
    return fresh


_version_at = rating.Tariffs.version_at
PLANTED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "an event told twice is billed twice": (batches, "_fresh", _bill_repeats),
    "the past is priced anew": (
        *(rating.Tariffs, "version_at"),
        lambda self, tenant_id, meter, moment: _version_at(self, tenant_id, meter, timezone.now()),
    ),
    "late usage goes into a month that is closed": (
        *(LockedPeriods, "invoiced_in"),
        lambda self, tenant_id, month: month,
    ),
    "the running sums are not written": (batches, "_add_up", lambda lines, months: None),
    "usage takes no money": (batches, "usage_capture", lambda charges, reference: None),
    "a tier starts anew with every batch": (batches, "_count", lambda rater: None),
    "credit pays and stays": (capture, "balance_change", lambda entries, account: 0),
    "an invoice is not booked": (invoices, "_book", lambda by, invoice, bill: None),
}


@pytest.mark.parametrize("violation", PLANTED)
def test_a_planted_violation_is_caught(violation: str, shop: BillingDepartment, monkeypatch: pytest.MonkeyPatch):
    where, name, planted = PLANTED[violation]
    monkeypatch.setattr(where, name, planted)
    with pytest.raises(AssertionError):
        a_year_in_short(shop)
