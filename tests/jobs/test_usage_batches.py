"""Usage of a whole batch follows the rules of single events, row for row."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gpu_runtime.protocol.messages import UsageLine
from tenants.billing.models import RatedUsage, UsageEvent
from tenants.billing.usage.batches import MeteredWork, usage_ingest_batch
from tenants.errors import ApplicationError
from tenants.scope import platform_scope
from tests.support.story import Person
from tests.support.usage import set_price, usage_ingest

pytestmark = pytest.mark.django_db

MOMENT = datetime(2026, 5, 1, tzinfo=UTC)
JOB = uuid4()


def work(person: Person, event_id: str, *, samples: int = 16, **fields: Any) -> MeteredWork:
    lines = (UsageLine(meter="train.samples", quantity=samples), UsageLine(meter="train.compute_us", quantity=777))
    values = {"lines": lines, "occurred_at": MOMENT, "billable": True, "reason": "", **fields}
    return MeteredWork(tenant_id=person.tenant.pk, job_id=JOB, event_id=event_id, **values)


def books() -> list[tuple[Any, ...]]:
    with platform_scope():
        rated = RatedUsage.objects.order_by("tenant_id", "event__event_id", "event__meter")
        names = ("tenant_id", "job_id", "price_id", "amount", "currency")
        event = ("event_id", "source", "meter", "quantity", "billable", "reason", "occurred_at", "content_sha256")
        return list(rated.values_list(*names, *(f"event__{name}" for name in event)))


def ingest_one_by_one(person: Person, works: list[MeteredWork]) -> None:
    for one in works:
        usage_ingest(
            tenant=person.tenant,
            job_id=one.job_id,
            source="journal",
            event_id=one.event_id,
            lines=one.lines,
            occurred_at=one.occurred_at,
            billable=one.billable,
            reason=one.reason,
        )


def ingest(works: list[MeteredWork]) -> list[tuple[Any, str]]:
    """The keys that are refused."""
    with platform_scope():
        refused = usage_ingest_batch(works, source="journal").refused
    return [(refusal.tenant_id, refusal.event_id) for refusal in refused]


def test_a_batch_leaves_the_rows_single_events_leave(alice: Person) -> None:
    later = MOMENT + timedelta(days=30)
    set_price("train.samples", "0.07", per=1000, valid_from=later)
    works = [
        work(alice, "a"),
        work(alice, "b", billable=False, reason="redone_after_restart"),
        work(alice, "c", occurred_at=later),
        work(alice, "d", occurred_at=later - timedelta(microseconds=1)),
    ]
    assert ingest(works) == []
    in_batch = books()
    assert len(in_batch) == 8
    ingest_one_by_one(alice, works)
    assert books() == in_batch, "single events know what the batch told, to the last digit of their content"
    assert len({row[2] for row in in_batch if row[7] == "train.samples"}) == 2


def test_repeats_within_and_across_batches_take_effect_once(alice: Person, charlie: Person) -> None:
    assert ingest([work(alice, "a"), work(alice, "a"), work(charlie, "a")]) == []
    assert ingest([work(alice, "a"), work(alice, "b")]) == []
    with platform_scope():
        assert UsageEvent.objects.count() == 2 * 3


def test_a_contradiction_is_refused_and_its_neighbours_are_not(alice: Person) -> None:
    ingest([work(alice, "a")])
    refused = ingest([work(alice, "a", samples=17), work(alice, "b"), work(alice, "b", samples=18)])
    assert refused == [(alice.tenant.pk, "a"), (alice.tenant.pk, "b")]
    with platform_scope():
        assert set(UsageEvent.objects.filter(meter="train.samples").values_list("quantity", flat=True)) == {16}


def test_usage_without_a_price_stores_nothing_at_all(alice: Person) -> None:
    with pytest.raises(ApplicationError, match="no_price"):
        ingest([work(alice, "a"), work(alice, "b", occurred_at=datetime(1999, 1, 1, tzinfo=UTC))])
    assert books() == []


def test_the_number_of_statements_does_not_grow_with_the_batch(alice: Person) -> None:
    counts = []
    for size in (1, 2, 30):  # the first opens the tenant's account and month
        with CaptureQueriesContext(
            connection,
        ) as queries:
            ingest([work(alice, f"{size}-{number}") for number in range(size)])
        counts.append(len(queries))
    assert counts[1] == counts[2]
