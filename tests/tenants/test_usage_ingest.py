"""Usage takes effect once, for ever, at the price of its moment."""

import threading
import uuid
from decimal import Decimal

import pytest
from django.db import connection

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import Meter, RatedUsage, UsageEvent
from tenants.billing.reconcile.usage import every_event_is_rated
from tenants.billing.usage import selectors
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.factories import TenantFactory, moment
from tests.support.story import Person, Story
from tests.support.usage import ingest, set_price, set_prices

JOB = uuid.UUID(int=7)


def counts() -> tuple[int, int]:
    with platform_scope():
        return UsageEvent.objects.count(), RatedUsage.objects.count()


@pytest.fixture(autouse=True)
def _prices(db: None) -> None:
    set_prices()


def test_every_line_is_stored_and_rated(alice: Person):
    ingest(alice.tenant, job_id=JOB, samples=16, compute_us=1_500)
    cost = selectors.job_cost(alice.tenant, JOB)
    assert [(line.meter, line.quantity, line.amount) for line in cost.lines] == [
        ("train.compute_us", 1_500, Decimal("0.0000005")),
        ("train.samples", 16, Decimal("0.0008")),
    ]
    assert (cost.amount, cost.currency) == (Decimal("0.0008005"), "EUR")
    assert counts() == (2, 2)


def test_the_same_event_again_changes_nothing(alice: Person):
    first = ingest(alice.tenant, job_id=JOB, event_id="e")
    again = ingest(alice.tenant, job_id=JOB, event_id="e")
    assert {row.pk for row in first} == {row.pk for row in again}
    assert counts() == (2, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 17},
        {"job_id": uuid.UUID(int=8)},
        {"billable": False, "reason": "redone_after_restart"},
        {"occurred_at": moment("2026-05-01T12:00:01")},
        {"lines": (UsageLine(meter="train.samples", quantity=16),)},
    ],
)
def test_the_same_id_with_other_content_is_refused_and_logged(alice: Person, change: dict, caplog):
    ingest(alice.tenant, job_id=JOB, event_id="e")
    with pytest.raises(ApplicationError) as caught:
        ingest(alice.tenant, **{"job_id": JOB, "event_id": "e"} | change)
    assert (caught.value.code, caught.value.status) == ("usage_conflict", 409)
    assert "usage event e of journal-1 came again with other content" in caplog.text
    assert counts() == (2, 2)


def test_event_ids_of_other_tenants_and_journals_are_independent(story: Story):
    ingest(story.alice.tenant, event_id="e")
    ingest(story.charlie.tenant, event_id="e")
    ingest(story.alice.tenant, event_id="e", source="journal-2")
    assert counts() == (6, 6)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (UsageLine(meter="train.luck", quantity=1),),
        (UsageLine(meter="train.samples", quantity=1), UsageLine(meter="train.samples", quantity=2)),
    ],
)
def test_no_line_an_unknown_meter_and_a_repeated_meter_are_refused(alice: Person, lines: tuple):
    with pytest.raises(ApplicationError, match=r"one line per meter out of"):
        ingest(alice.tenant, lines=lines)
    assert counts() == (0, 0)


def test_what_is_not_billable_is_rated_at_zero_and_keeps_its_reason(alice: Person):
    rows = ingest(alice.tenant, job_id=JOB, billable=False, reason="redone_after_restart")
    assert {row.reason for row in rows} == {"redone_after_restart"}
    assert {row.rated.amount for row in rows} == {Decimal(0)}
    assert selectors.job_cost(alice.tenant, JOB).amount == 0


def test_the_price_is_the_one_valid_when_it_happened(alice: Person):
    set_price("train.samples", "1", per=1, valid_from=moment("2026-05-02T00:00:00"))

    def samples_cost(text: str) -> Decimal:
        rows = ingest(alice.tenant, samples=1_000, occurred_at=moment(text))
        return next(row.rated.amount for row in rows if row.meter == "train.samples")

    assert samples_cost("2026-05-01T23:59:59.999999") == Decimal("0.05")
    assert samples_cost("2026-05-02T00:00:00") == Decimal(1_000)


def test_usage_before_any_price_is_refused_whole(alice: Person):
    with pytest.raises(ApplicationError, match="No price of"):
        ingest(alice.tenant, occurred_at=moment("2019-12-31T23:59:59"))
    assert counts() == (0, 0)


def test_many_tiny_amounts_add_up_exactly(alice: Person):
    rows = [ingest(alice.tenant, job_id=JOB, samples=0, compute_us=1)[0] for _ in range(60)]
    each = next(row.rated.amount for row in rows)
    assert each == Decimal("0.000000000333")
    assert selectors.job_cost(alice.tenant, JOB).amount == 60 * each


def test_the_books_agree_with_themselves_and_with_measured_time(story: Story):
    ingest(story.alice.tenant, compute_us=700)
    ingest(story.alice.tenant, compute_us=300, billable=False, reason="redone_after_restart")
    ingest(story.charlie.tenant, compute_us=50)
    with platform_scope():
        assert every_event_is_rated().differences == []
    metered_us = {str(story.alice.tenant.pk): 1_000, str(story.charlie.tenant.pk): 50}
    assert selectors.metered_us(Meter.TRAIN_COMPUTE_US) == metered_us


def test_a_tenants_cost_covers_a_period_and_no_other_tenant(story: Story):
    for day in ("2026-04-30T23:59:59", "2026-05-01T00:00:00", "2026-05-31T23:59:59", "2026-06-01T00:00:00"):
        ingest(story.alice.tenant, samples=1_000, compute_us=0, occurred_at=moment(day))
    ingest(story.charlie.tenant, samples=1_000, compute_us=0)
    may = {"since": moment("2026-05-01T00:00:00"), "until": moment("2026-06-01T00:00:00")}
    assert selectors.tenant_cost(story.alice.tenant, **may).amount == Decimal("0.1")
    assert selectors.tenant_cost(story.alice.tenant).amount == Decimal("0.2")


@pytest.mark.django_db(transaction=True)
def test_of_two_racing_ingests_of_one_event_one_counts():
    tenant = TenantFactory()
    start, ids = threading.Barrier(3), []

    def report() -> None:
        start.wait()
        try:
            ids.append(frozenset(row.pk for row in ingest(tenant, job_id=JOB, event_id="e")))
        finally:
            connection.close()

    threads = [threading.Thread(target=report) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 3
    assert len(set(ids)) == 1
    assert counts() == (2, 2)
