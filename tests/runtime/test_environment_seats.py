"""Who gets seats, who waits, why and where: the table against its rules, and waiting for real."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runtime.environments.errors import SeatsRefused
from gpu_runtime.environments.seat_desk import SeatDesk
from gpu_runtime.environments.seats import SeatRequest, SeatTable, SeatWait, WaitReason
from tests.support.environments import pool_of, wanted


def test_more_than_a_tenant_or_the_service_will_ever_have_is_refused_at_once() -> None:
    table = SeatTable(total=8, per_tenant=4)
    for seats in (0, -1, 5, 9):
        with pytest.raises(SeatsRefused, match=f"seats: {seats} for tenant alice; allowed: 1 to 4"):
            table.request("alice", seats)
    with pytest.raises(SeatsRefused, match="allowed: 1 to 3"):
        SeatTable(total=3, per_tenant=4).request("alice", 4)
    assert (table.waits(), table.held()) == ({}, {})


def test_whoever_waits_for_its_own_quota_holds_nobody_up() -> None:
    table = SeatTable(total=8, per_tenant=4)
    first, second = table.request("alice", 3), table.request("alice", 3)
    other = table.request("bob", 4)
    assert table.admit() == [first, other]
    assert table.waits() == {second: SeatWait(reason=WaitReason.TENANT_QUOTA, position=1)}
    table.release(first)
    assert table.admit() == [second]


def test_a_large_request_is_not_overtaken_by_small_ones() -> None:
    table = SeatTable(total=4, per_tenant=4)
    small = table.request("alice", 2)
    assert table.admit() == [small]
    large, late = table.request("bob", 4), table.request("charlie", 1)
    assert table.admit() == []
    assert table.waits() == {
        large: SeatWait(reason=WaitReason.ALL_TAKEN, position=1),
        late: SeatWait(reason=WaitReason.BEHIND_OTHERS, position=2),
    }
    table.release(small)
    assert table.admit() == [large]
    assert table.waits() == {late: SeatWait(reason=WaitReason.ALL_TAKEN, position=1)}


def test_a_large_request_is_not_starved_by_its_own_tenants_small_ones() -> None:
    table = SeatTable(total=8, per_tenant=4)
    small = table.request("alice", 2)
    assert table.admit() == [small]
    large = table.request("alice", 4)
    for _ in range(5):  # a small job that asks again as soon as it has given back
        again, other = table.request("alice", 2), table.request("bob", 4)
        assert table.admit() == [other], "nobody else waits for alice's quota"
        assert table.waits() == {
            large: SeatWait(reason=WaitReason.TENANT_QUOTA, position=1),
            again: SeatWait(reason=WaitReason.BEHIND_OTHERS, position=2),
        }
        table.release(again)
        table.release(other)
    table.release(small)
    again = table.request("alice", 2)
    assert table.admit() == [large]
    table.release(large)
    assert table.admit() == [again]


def test_giving_back_twice_frees_nothing_twice() -> None:
    table = SeatTable(total=2, per_tenant=2)
    first, second = table.request("alice", 1), table.request("alice", 1)
    table.admit()
    table.release(first)
    table.release(first)
    assert table.held() == {"alice": 1}
    table.release(second)
    assert table.held() == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), st.sampled_from("abc"), st.integers(1, 4)),
        st.tuples(st.just("release"), st.integers(0, 30), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_quotas_hold_and_nobody_waits_without_a_reason_and_all_seats_come_back(steps: list[tuple]) -> None:
    table = SeatTable(total=6, per_tenant=4)
    asked: list[SeatRequest] = []
    for kind, what, seats in steps:
        if kind == "request":
            asked.append(table.request(what, seats))
        elif asked:
            table.release(asked.pop(what % len(asked)))
        table.admit()
        check_rules(table, asked)
    for request in asked:
        table.release(request)
    assert (table.admit(), table.held(), table.waits()) == ([], {}, {})


def check_rules(table: SeatTable, asked: list[SeatRequest]) -> None:
    waits, held = table.waits(), table.held()
    seated = [request for request in asked if request not in waits]
    assert sum(held.values()) == sum(request.seats for request in seated) <= 6
    assert all(held.get(tenant, 0) <= 4 for tenant in "abc")
    assert [wait.position for wait in waits.values()] == list(range(1, len(waits) + 1))
    assert [request.number for request in waits] == sorted(request.number for request in waits)
    free, queue_stands, held_up = 6 - sum(held.values()), False, set()
    for request, wait in waits.items():
        own = held.get(request.tenant_id, 0) + request.seats > 4
        assert (wait.reason is WaitReason.TENANT_QUOTA) == own
        if own:
            held_up.add(request.tenant_id)
        elif request.tenant_id in held_up:
            assert wait.reason is WaitReason.BEHIND_OTHERS
        else:
            first = not queue_stands
            assert (wait.reason is WaitReason.ALL_TAKEN) == first
            assert not first or request.seats > free  # the first in the queue waits only for seats that are not there
            queue_stands = True


async def test_a_waiting_request_hears_of_every_change_and_a_cancelled_one_leaves_the_queue() -> None:
    desk = SeatDesk(SeatTable(total=2, per_tenant=2))
    seated = await desk.take("alice", 2, None)
    heard: list[SeatWait] = []
    impatient = asyncio.create_task(desk.take("bob", 2, None))
    patient = asyncio.create_task(desk.take("charlie", 1, heard.append))
    await asyncio.sleep(0)
    assert heard == [SeatWait(reason=WaitReason.BEHIND_OTHERS, position=2)]
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    assert heard[1:] == [SeatWait(reason=WaitReason.ALL_TAKEN, position=1)]
    assert desk.waiting == 1
    desk.give_back(seated)
    desk.give_back(await patient)
    assert (desk.held(), desk.waiting, len(heard)) == ({}, 0, 2)


async def test_a_session_waits_for_seats_and_opens_when_another_closes() -> None:
    heard: list[SeatWait] = []
    async with pool_of(seats_total=3, seats_per_tenant=2) as pool:
        alice = await pool.open(wanted(seats=2))
        again = asyncio.create_task(pool.open(wanted(seats=1), on_wait=heard.append))
        bob = await pool.open(wanted(tenant="bob", seats=1))
        assert heard == [SeatWait(reason=WaitReason.TENANT_QUOTA, position=1)]
        assert (pool.status().seats, pool.status().waiting) == ({"alice": 2, "bob": 1}, 1)
        assert not again.done()
        await alice.close()
        async with await again as session:
            await session.reset([1])
            assert pool.status().seats == {"alice": 1, "bob": 1}
        await bob.close()
        assert (pool.status().seats, pool.status().waiting) == ({}, 0)


async def test_a_cancelled_wait_or_start_holds_no_seat() -> None:
    async with pool_of(seats_total=1) as pool:
        starting = asyncio.create_task(pool.open(wanted()))
        waiting = asyncio.create_task(pool.open(wanted(tenant="bob")))
        await asyncio.sleep(0.05)
        for task in (waiting, starting):
            task.cancel()
        results = await asyncio.gather(starting, waiting, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        status = pool.status()
        assert (status.seats, status.waiting, status.processes_used, status.processes_warm) == ({}, 0, 0, 0)
