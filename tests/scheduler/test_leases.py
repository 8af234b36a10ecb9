"""Leases expire, and their epochs fence off who comes late."""

import pytest

from gpu_runtime.scheduler.errors import InvalidRequest, StaleEpoch
from gpu_runtime.scheduler.leases import LeaseBook


@pytest.fixture
def book() -> LeaseBook:
    return LeaseBook(ttl_us=100)


def test_a_lease_lapses_after_its_ttl_and_not_before(book):
    book.grant("p", now_us=0)
    assert book.lapsed(99) == []
    assert book.next_expiry_us() == 100
    assert book.lapsed(100) == ["p"]


def test_a_renewed_lease_lives_another_ttl_and_keeps_its_epoch(book):
    lease = book.grant("p", now_us=0)
    renewed = book.renew("p", lease.epoch, now_us=60)
    assert (renewed.epoch, renewed.granted_us, renewed.expires_us) == (lease.epoch, 0, 160)
    assert book.lapsed(159) == []
    assert book.lapsed(160) == ["p"]


def test_a_lease_renewed_twice_at_the_same_time_lapses_once(book):
    lease = book.grant("p", now_us=0)
    for _ in range(2):
        book.renew("p", lease.epoch, now_us=60)
    assert book.lapsed(1_000) == ["p"]


def test_a_lease_past_its_expiry_cannot_be_renewed(book):
    lease = book.grant("p", now_us=0)
    with pytest.raises(StaleEpoch, match="expired at 100"):
        book.renew("p", lease.epoch, now_us=100)


def test_every_epoch_but_the_live_one_is_stale(book):
    old = book.grant("p", now_us=0)
    book.revoke("p")
    new = book.grant("p", now_us=1)
    assert book.verify("p", new.epoch) == new
    for epoch in (old.epoch, new.epoch + 1):
        with pytest.raises(StaleEpoch, match=f"epoch {epoch} is over"):
            book.verify("p", epoch)


def test_epochs_of_a_new_incarnation_are_above_all_lost_ones(book):
    lost = [book.grant(f"p{at}", now_us=0).epoch for at in range(10)]
    restarted = LeaseBook(ttl_us=100)
    restarted.start_after(lost[3])
    assert restarted.grant("p", now_us=0).epoch > max(lost)


def test_leases_lapse_longest_ago_first(book):
    for at, name in enumerate("cab"):
        book.grant(name, now_us=at)
    assert book.lapsed(1_000) == ["c", "a", "b"]


def test_a_lease_without_a_life_is_refused():
    with pytest.raises(InvalidRequest, match="ttl_us"):
        LeaseBook(ttl_us=0)
