"""When usage may be told, and on whose month's invoice it goes."""

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from django.utils import timezone

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.invoices.services import invoice_finalize
from tenants.billing.models import BillingPeriod, RatedUsage, UsageEvent, UsageRollup
from tenants.billing.usage.batches import Refusal
from tenants.billing.usage.periods import month_after, month_of
from tenants.billing.usage.selectors import spent
from tenants.billing.usage.works import FUTURE_TOLERANCE, QUANTITY_MAX, MeteredWork
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.factories import moment
from tests.support.story import Person
from tests.support.usage import close_month, set_price, tell, work

pytestmark = pytest.mark.django_db

MAY, JUNE, JULY, AUGUST = (date(2026, month, 1) for month in (5, 6, 7, 8))


def invoiced_in(tenant: Tenant) -> list[date]:
    with platform_scope():
        rows = RatedUsage.objects.filter(tenant=tenant).order_by("event_id")
        return list(rows.values_list("period", flat=True))


def test_usage_is_on_the_invoice_of_the_month_it_happened_in_until_that_is_closed(alice: Person) -> None:
    last, first = moment("2026-05-31T23:59:59.999999"), moment("2026-06-01T00:00:00")
    tell(work(alice.tenant, occurred_at=last), work(alice.tenant, occurred_at=first))
    assert invoiced_in(alice.tenant) == [MAY, JUNE]


def test_late_usage_goes_to_the_oldest_open_month_at_the_price_of_its_moment(alice: Person) -> None:
    set_price("train.samples", "7", per=1_000, valid_from=moment("2026-06-01T00:00:00"))
    with time_machine.travel("2026-08-03T00:00:00Z", tick=False):
        for day in ("2026-05-10", "2026-06-10", "2026-07-10", "2026-08-01"):
            tell(work(alice.tenant, occurred_at=moment(f"{day}T00:00:00")))
        close_month(alice.tenant, MAY)
        close_month(alice.tenant, JUNE)
        tell(work(alice.tenant, samples=1_000, occurred_at=moment("2026-05-11T00:00:00")))
    assert invoiced_in(alice.tenant)[-1] == JULY
    with platform_scope():
        late = UsageRollup.objects.get(day=date(2026, 5, 11))
    assert (late.period, late.amount) == (JULY, Decimal("0.05"))


def test_late_usage_goes_to_the_oldest_open_month_though_nothing_happened_in_it(
    alice: Person, charlie: Person
) -> None:
    close_month(alice.tenant, MAY)
    with time_machine.travel("2026-08-03T00:00:00Z", tick=False):
        tell(work(alice.tenant), work(charlie.tenant))
    assert (invoiced_in(alice.tenant), invoiced_in(charlie.tenant)) == ([JUNE], [MAY])
    with time_machine.travel("2026-08-04T00:00:00Z", tick=False):
        invoice = invoice_finalize(by=None, tenant=alice.tenant, month=JUNE)
    assert invoice is not None
    with platform_scope():
        assert [line.description for line in invoice.lines.all()] == ["Training samples (late usage of 2026-05)"]


def test_december_told_in_february_is_on_januarys_invoice_if_that_is_not_final(alice: Person) -> None:
    december, january = date(2026, 12, 1), date(2027, 1, 1)
    close_month(alice.tenant, december)
    with time_machine.travel("2027-02-04T00:00:00Z", tick=False):
        tell(work(alice.tenant, occurred_at=moment("2026-12-31T23:00:00")))
        close_month(alice.tenant, january)
        tell(work(alice.tenant, occurred_at=moment("2026-12-31T23:30:00")))
    assert invoiced_in(alice.tenant) == [january, date(2027, 2, 1)]


def test_what_counts_for_a_months_budget_is_when_it_happened(alice: Person) -> None:
    close_month(alice.tenant, MAY)
    tell(work(alice.tenant, samples=1_000))
    assert invoiced_in(alice.tenant) != [MAY]
    assert spent(alice.tenant, month=MAY) == Decimal("0.05")


def test_every_month_from_the_usage_to_now_is_known_afterwards(alice: Person) -> None:
    with time_machine.travel("2026-08-03T00:00:00Z", tick=False):
        tell(work(alice.tenant))
    with platform_scope():
        months = BillingPeriod.objects.filter(tenant=alice.tenant).order_by("start")
        assert list(months.values_list("start", flat=True)) == [MAY, JUNE, JULY, AUGUST]


def test_a_repeat_that_comes_after_its_month_was_closed_changes_nothing(alice: Person) -> None:
    first = work(alice.tenant)
    tell(first)
    close_month(alice.tenant, MAY)
    assert tell(first).charged == ()
    assert invoiced_in(alice.tenant) == [MAY]


def test_clocks_may_run_ahead_by_five_minutes_and_no_further(alice: Person, caplog: pytest.LogCaptureFixture) -> None:
    with time_machine.travel("2026-05-01T00:00:00Z", tick=False):
        now = timezone.now()
        ok = work(alice.tenant, occurred_at=now + FUTURE_TOLERANCE)
        ahead = work(alice.tenant, occurred_at=now + FUTURE_TOLERANCE + timedelta(microseconds=1))
        result = tell(ahead, ok)
        assert [(refusal.event_id, refusal.code) for refusal in result.refused] == [(ahead.event_id, Refusal.FUTURE)]
    assert f"usage event {ahead.event_id} of journal-1 claims to happen at" in caplog.text
    assert len(invoiced_in(alice.tenant)) == 1
    with time_machine.travel("2026-05-01T00:10:00Z", tick=False):
        assert tell(ahead).refused == (), "told again when its time has come, it counts"
    assert len(invoiced_in(alice.tenant)) == 2


@pytest.mark.parametrize("quantity", [QUANTITY_MAX + 1, 2**63, 2**70])
def test_a_quantity_beyond_reason_is_refused_whole_and_logged(
    alice: Person, quantity: int, caplog: pytest.LogCaptureFixture
) -> None:
    huge = work(alice.tenant, lines={"train.samples": 1, "train.compute_us": quantity})
    assert [refusal.code for refusal in tell(huge).refused] == [Refusal.IMPLAUSIBLE]
    assert str(quantity) in caplog.text
    with platform_scope():
        assert UsageEvent.objects.count() == 0


def test_a_negative_quantity_is_refused_even_past_the_message_check(alice: Person) -> None:
    line = UsageLine.model_construct(meter="train.samples", quantity=-5)
    told = work(alice.tenant)
    negative = MeteredWork(
        tenant_id=told.tenant_id,
        job_id=told.job_id,
        event_id="e",
        lines=(line,),
        occurred_at=told.occurred_at,
    )
    assert [refusal.code for refusal in tell(negative).refused] == [Refusal.IMPLAUSIBLE]


@pytest.mark.parametrize(
    ("text", "month"),
    [
        ("2026-05-01T00:00:00+00:00", MAY),
        ("2026-05-31T23:59:59+00:00", MAY),
        ("2026-06-01T01:00:00+02:00", MAY),
        ("2026-05-31T23:00:00-02:00", JUNE),
    ],
)
def test_months_are_utc(text: str, month: date) -> None:
    assert month_of(datetime.fromisoformat(text)) == month


def test_december_is_followed_by_january() -> None:
    assert month_after(date(2026, 12, 1)) == date(2027, 1, 1)
    assert month_after(MAY) == JUNE
