"""Storage on the bill: one event per tenant and hour, exact to the byte-hour, however late and often it is metered."""

import threading
from collections import Counter
from datetime import datetime, timedelta

import pytest
from django.db import connection

from tenants.billing.models import Meter, RatedUsage, UsageEvent, UsageRollup
from tenants.errors import ApplicationError
from tenants.quotas import metering, storage
from tenants.quotas.metering import storage_meter
from tenants.quotas.models import StorageAccount, StorageHour
from tenants.quotas.tasks import meter_storage
from tenants.scope import platform_scope
from tests.support.story import Person, Story

GB = 10**9


class Clock:
    """A time the test sets; billing's own clock goes with it."""

    def __init__(self, start: datetime) -> None:
        self.now = start

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    from django.utils import timezone

    this_hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    clock = Clock(this_hour - timedelta(hours=60))
    monkeypatch.setattr(storage.timezone, "now", clock)
    return clock


def events() -> list[tuple[str, int]]:
    with platform_scope():
        rows = UsageEvent.objects.filter(source="storage").order_by("occurred_at", "tenant_id")
        return [(row.event_id, row.quantity) for row in rows]


def hour(clock: Clock) -> str:
    return f"{clock.now:%Y-%m-%dT%H}"


def test_an_hour_that_is_over_is_one_event_at_its_beginning(alice: Person, clock: Clock):
    begun = clock.now
    storage.storage_add(alice.tenant, 3 * GB)
    clock.now = begun + timedelta(minutes=59)
    assert (meter_storage(), events()) == (0, [])
    clock.now = begun + timedelta(hours=1)
    assert meter_storage() == 1
    assert events() == [(f"{begun:%Y-%m-%dT%H}", 3 * GB)]
    with platform_scope():
        event = UsageEvent.objects.get()
        assert (event.meter, event.occurred_at) == (Meter.STORAGE_BYTE_HOURS, begun)
        assert RatedUsage.objects.get().event == event
        assert UsageRollup.objects.get().quantity == 3 * GB


def test_metering_again_tells_nothing_twice(alice: Person, clock: Clock):
    storage.storage_add(alice.tenant, 3600)
    clock.now += timedelta(hours=2)
    assert [storage_meter(), storage_meter()] == [2, 0]
    clock.now += timedelta(minutes=30)
    assert storage_meter() == 0
    assert len(events()) == 2


def test_every_hour_of_a_downtime_is_caught_up_with_what_was_held_in_it(alice: Person, clock: Clock):
    begun = clock.now
    storage.storage_add(alice.tenant, 100)
    clock.now += timedelta(hours=1, minutes=30)
    storage.storage_add(alice.tenant, 100)
    clock.now = begun + timedelta(hours=50)
    assert storage_meter() == 50
    assert [quantity for _, quantity in events()] == [100, 150] + [200] * 48
    assert [name for name, _ in events()] == [f"{begun + timedelta(hours=n):%Y-%m-%dT%H}" for n in range(50)]


def test_parts_of_a_byte_hour_are_carried_on_and_never_lost(alice: Person, clock: Clock):
    storage.storage_add(alice.tenant, 7)
    clock.now += timedelta(seconds=1000)
    storage.storage_release(alice.tenant, used=6)
    for _ in range(50):
        clock.now += timedelta(hours=1)
        storage_meter()
    with platform_scope():
        account = StorageAccount.objects.get()
        total = sum(row.byte_s for row in StorageHour.objects.exclude(byte_hours=None))
    assert account.byte_s < 3600
    assert sum(quantity for _, quantity in events()) * 3600 + account.byte_s == total
    assert total == 7 * 1000 + 1 * (50 * 3600 - 1000)


def test_each_tenant_has_its_own_events(story: Story, clock: Clock):
    storage.storage_add(story.alice.tenant, 10)
    storage.storage_add(story.charlie.tenant, 20)
    clock.now += timedelta(hours=1)
    assert storage_meter() == 2
    assert sorted(quantity for _, quantity in events()) == [10, 20]


def test_a_tenant_that_cannot_be_rated_keeps_its_hours_and_holds_up_nobody(
    story: Story, clock: Clock, monkeypatch, caplog
):
    for person in (story.alice, story.charlie):
        storage.storage_add(person.tenant, 10)
    clock.now += timedelta(hours=1)
    rate = metering.usage_ingest_batch

    def refuse(works, *, source):
        if works and works[0].tenant_id == story.alice.tenant.pk:
            raise ApplicationError(code="no_price", detail="No price is valid.")
        return rate(works, source=source)

    with monkeypatch.context() as patch:
        patch.setattr(metering, "usage_ingest_batch", refuse)
        assert storage_meter() == 1
    assert "is not metered" in caplog.text
    assert storage_meter() == 1
    assert [quantity for _, quantity in events()] == [10, 10]


@pytest.mark.django_db(transaction=True)
def test_four_meters_at_once_tell_every_hour_once(alice: Person, clock: Clock):
    storage.storage_add(alice.tenant, 100)
    clock.now += timedelta(hours=20)
    told, failures, ready = [], [], threading.Barrier(4)

    def run() -> None:
        ready.wait()
        try:
            told.append(storage_meter())
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, sum(told), len(events())) == ([], 20, 20)


def test_bytes_held_over_the_end_of_a_month_are_on_both_bills_to_the_second(alice: Person, clock: Clock):
    month = clock.now.replace(day=1, hour=0)
    clock.now = month - timedelta(hours=3)
    storage.storage_add(alice.tenant, 3600)
    clock.now = month - timedelta(minutes=10)
    storage.storage_add(alice.tenant, 3600)
    clock.now = month + timedelta(hours=26, seconds=1)  # nobody metered for a day
    assert storage_meter() == 29
    assert storage_meter() == 0
    with platform_scope():
        sums: Counter[str] = Counter()
        for row in UsageRollup.objects.all():
            sums[f"{row.day:%Y-%m}"] += row.quantity
    before = 3600 * 3 + 600  # byte-hours: the second half came ten minutes before the end
    assert sums == {f"{month - timedelta(days=1):%Y-%m}": before, f"{month:%Y-%m}": 2 * 3600 * 26}
