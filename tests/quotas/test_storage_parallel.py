"""Many transfers of one tenant at once, each with a life of its own: no byte too many, none lost, zero at the end."""

import threading
import time
import uuid
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenants.errors import ApplicationError
from tenants.quotas import leases, storage
from tenants.quotas.leases import Lease, lease_hold, lease_release, lease_settle
from tenants.quotas.models import Resource, StorageAccount, StorageLease
from tenants.quotas.services import quota_set
from tenants.quotas.storage import Stored, storage_of, storage_release
from tenants.scope import platform_scope
from tests.support.story import Person

LIMIT = 100
THREADS = 3

# One transfer: what it reserves at first, how it grows, whether it ends as a version (of how many of its bytes).
TRANSFERS = st.tuples(
    st.integers(1, 70), st.lists(st.integers(1, 90), max_size=2), st.one_of(st.none(), st.integers(0, 90))
)
PROGRAMS = st.lists(st.lists(TRANSFERS, min_size=1, max_size=3), min_size=THREADS, max_size=THREADS)


class Lab:
    """Alice's lab with a limit of 100 bytes, and what was seen of it."""

    def __init__(self, person: Person) -> None:
        self.tenant = person.tenant
        self.seen_max = 0
        self.failures: list[BaseException] = []
        quota_set(by=person.user, tenant=person.tenant, resource=Resource.STORAGE_BYTES, limit=LIMIT)

    def look(self) -> None:
        stored = storage_of(self.tenant)
        self.seen_max = max(self.seen_max, stored.used_bytes + stored.reserved_bytes)

    def transfer(self, first: int, growth: list[int], used: int | None) -> None:
        """Reserve, grow, settle and delete, or release; a refusal ends it as it ends a request."""
        lease = Lease(tenant=self.tenant, id=uuid.uuid4())
        try:
            for size in (first, *growth):
                lease_hold(lease, size)
                self.look()
            if used is not None:
                lease_settle(lease, used=used)
                self.look()
                storage_release(self.tenant, used=used)
        except ApplicationError as refusal:
            if refusal.code != "quota_exceeded":
                raise
        finally:
            lease_release(lease)

    def run(self, programs: list[list[tuple[int, list[int], int | None]]]) -> None:
        """Each program in a thread with a connection of its own."""

        def work(program) -> None:
            try:
                for transfer in program:
                    self.transfer(*transfer)
            except BaseException as error:
                self.failures.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=work, args=(program,)) for program in programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def check(self) -> None:
        """The invariants, at quiescence."""
        assert self.failures == []
        assert self.seen_max <= LIMIT
        assert storage_of(self.tenant) == Stored()
        with platform_scope():
            assert not StorageLease.objects.exists()


@pytest.fixture
def lab(alice: Person) -> Lab:
    return Lab(alice)


@pytest.mark.django_db(transaction=True)
@settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(programs=PROGRAMS)
def test_transfers_in_parallel_keep_every_invariant(lab: Lab, caplog, programs) -> None:
    lab.run(programs)
    lab.check()
    assert "below zero" not in caplog.text


EIGHT = [[(60, [], None)] for _ in range(8)]  # any two of them are more than the limit


@pytest.mark.django_db(transaction=True)
def test_of_eight_reservations_that_fit_alone_no_two_are_ever_held_together(lab: Lab) -> None:
    lab.run(EIGHT)
    lab.check()


def _unlocked(tenant) -> StorageAccount:
    """The account as it was a moment ago: what a check before the lock would see."""
    with platform_scope():
        account, _ = StorageAccount.objects.get_or_create(
            tenant=tenant, defaults={"accrued_at": storage.timezone.now().replace(microsecond=0)}
        )
    time.sleep(0.02)
    return account


def _reserve_without_lock(tenant, size_bytes: int) -> None:
    account = _unlocked(tenant)
    if account.used_bytes + account.reserved_bytes + size_bytes > LIMIT:
        raise ApplicationError(code="quota_exceeded", status=409, detail="full")
    with transaction.atomic():
        storage._change(storage.account_for_update(tenant), reserved=size_bytes)


def _hold_without_lock(lease: Lease, size_bytes: int) -> None:
    _reserve_without_lock(lease.tenant, size_bytes)
    with platform_scope():
        StorageLease.objects.create(pk=lease.id, tenant=lease.tenant, reserved_bytes=size_bytes)


def _settle_without_giving_back(lease: Lease, *, used: int) -> None:
    storage.storage_commit(lease.tenant, reserved=0, used=used)  # forgets what was reserved
    leases._forget(lease)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "broken", "programs"),
    [
        ("lease_hold", _hold_without_lock, EIGHT),
        ("lease_settle", _settle_without_giving_back, [[(10, [], 10)]] * 2),
    ],
)
def test_a_planted_violation_is_found(
    lab: Lab, monkeypatch, name: str, broken: Callable[..., None], programs: list
) -> None:
    monkeypatch.setitem(globals(), name, broken)
    lab.run(programs)
    with pytest.raises(AssertionError):
        lab.check()
