"""Bytes are reserved before they come, counted while they are held, and given back exactly."""

from datetime import datetime, timedelta

import pytest

from tenants.errors import ApplicationError
from tenants.quotas import storage
from tenants.quotas.models import Resource, StorageHour
from tenants.quotas.services import quota_set
from tenants.quotas.storage import Stored
from tenants.scope import platform_scope
from tests.support.factories import moment
from tests.support.story import Person, Story


@pytest.fixture
def clock(monkeypatch):
    """A time the test sets."""

    class Clock:
        now = moment("2026-03-01T10:30:00.400")

        def __call__(self) -> datetime:
            return self.now

    clock = Clock()
    monkeypatch.setattr(storage.timezone, "now", clock)
    return clock


@pytest.fixture
def lab(alice: Person):
    """Alice's lab may hold 100 bytes."""
    quota_set(by=alice.user, tenant=alice.tenant, resource=Resource.STORAGE_BYTES, limit=100)
    return alice.tenant


def hours() -> list[tuple[str, int]]:
    with platform_scope():
        return [(f"{row.hour:%dT%H}", row.byte_s) for row in StorageHour.objects.order_by("hour")]


def test_what_fits_is_reserved_and_what_does_not_is_refused_with_the_figures(lab):
    storage.storage_reserve(lab, 60)
    storage.storage_commit(lab, reserved=60, used=50)
    storage.storage_reserve(lab, 50)
    with pytest.raises(ApplicationError) as refusal:
        storage.storage_reserve(lab, 1)
    assert (refusal.value.status, refusal.value.code) == (409, "quota_exceeded")
    assert refusal.value.extra == {"resource": "storage_bytes", "limit": 100, "used": 50, "reserved": 50}
    assert storage.storage_of(lab) == Stored(used_bytes=50, reserved_bytes=50)


def test_a_refused_reservation_leaves_nothing_behind(lab):
    with pytest.raises(ApplicationError):
        storage.storage_reserve(lab, 101)
    assert storage.storage_of(lab) == Stored()


def test_what_is_there_already_is_counted_beyond_the_limit_and_blocks_the_next_reservation(lab):
    storage.storage_add(lab, 150)
    with pytest.raises(ApplicationError, match="0 are free"):
        storage.storage_reserve(lab, 1)


def test_a_raised_limit_counts_at_once(lab, alice: Person):
    with pytest.raises(ApplicationError):
        storage.storage_reserve(lab, 200)
    quota_set(by=alice.user, tenant=lab, resource=Resource.STORAGE_BYTES, limit=200)
    storage.storage_reserve(lab, 200)


def test_everything_given_back_is_zero(lab):
    storage.storage_reserve(lab, 60)
    storage.storage_reserve(lab, 40)
    storage.storage_commit(lab, reserved=40, used=70)
    storage.storage_release(lab, reserved=60)
    storage.storage_release(lab, used=70)
    assert storage.storage_of(lab) == Stored()


def test_bytes_given_back_twice_are_told_and_never_make_room_that_is_not_there(lab, caplog):
    storage.storage_release(lab, used=5)
    assert "would fall below zero" in caplog.text
    assert storage.storage_of(lab) == Stored()


def test_tenants_have_accounts_of_their_own(story: Story):
    storage.storage_add(story.alice.tenant, 10)
    storage.storage_add(story.charlie.tenant, 20)
    assert storage.storage_of(story.alice.tenant).used_bytes == 10


def test_byte_seconds_are_exact_to_the_second_and_fall_into_their_hours(lab, clock):
    storage.storage_add(lab, 10)  # at 10:30:00
    clock.now += timedelta(seconds=30)
    storage.storage_add(lab, 5)  # at 10:30:30
    clock.now = moment("2026-03-01T12:00:10.900")
    storage.storage_release(lab, used=15)
    clock.now = moment("2026-03-01T15:00:00")
    storage.storage_add(lab, 1)
    assert hours() == [("01T10", 10 * 30 + 15 * (30 * 60 - 30)), ("01T11", 15 * 3600), ("01T12", 15 * 10)]


def test_many_changes_within_a_second_lose_nothing(lab, clock):
    storage.storage_add(lab, 100)
    for _ in range(10):  # each 0.3 s after the one before
        clock.now += timedelta(milliseconds=300)
        storage.storage_add(lab, 0)
    assert hours() == [("01T10", 100 * 3)]


def test_a_clock_that_was_set_back_counts_no_second_twice(lab, clock):
    storage.storage_add(lab, 10)
    clock.now += timedelta(seconds=10)
    storage.storage_add(lab, 0)
    clock.now -= timedelta(seconds=5)
    storage.storage_add(lab, 0)
    clock.now += timedelta(seconds=10)
    storage.storage_add(lab, 0)
    assert hours() == [("01T10", 10 * 15)]
