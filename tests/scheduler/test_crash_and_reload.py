"""What a crash loses, keeps and never does twice."""

import pytest

from gpu_runtime.scheduler.errors import (
    InvalidRequest,
)
from tests.support.scheduling import KNOBS, LIMITS, AuditedQueue, leased_ids, make_queue

TTL_US = LIMITS.lease_ttl_us


@pytest.fixture
def queue() -> AuditedQueue:
    return AuditedQueue()


def test_a_crash_loses_production_and_keeps_what_was_ready(queue):
    ready, leased = queue.produce("a1", 0), queue.produce("b1", 0)
    queue.lease(leased)
    half, behind = queue.reserve("c1", 0), queue.produce("c1", 1)
    queue.put(half)
    queue.crash()
    assert [queue.state(partition_id) for partition_id in (ready, leased)] == ["ready", "ready"]
    assert (queue.state(half), queue.queue.job(half).reason) == ("failed", "runtime_restart")
    assert (queue.state(behind), queue.queue.job(behind).reason) == ("cancelled", "earlier_step_failed")
    assert set(queue.queue.awaiting_clear()) == {half, behind}
    queue.drain()


def test_all_that_was_in_production_ends_once_however_many_of_a_job(queue):
    lost = [queue.reserve("a1", step) for step in range(3)]
    queue.crash()
    assert [queue.state(partition_id) for partition_id in lost] == ["failed", "cancelled", "cancelled"]


def test_what_is_reserved_after_a_crash_comes_after_what_was_before(queue):
    before = queue.produce("a1", 3)
    queue.crash()
    after = queue.reserve("a1", 3)
    assert queue.queue.job(after).created_seq > queue.queue.job(before).ready_seq


def test_what_the_weights_contain_is_not_consumed_again_after_a_crash(queue):
    contained, next_step = queue.produce("a1", 0), queue.produce("a1", 1)
    queue.lease(contained)
    queue.crash(consumed=[contained])
    assert queue.state(contained) == "completed"
    assert queue.queue.policy_version("a1") == 1
    assert leased_ids(queue.next_group(after_us=100)) == [next_step]


def test_a_partition_that_kills_the_runtime_each_time_ends(queue):
    poison = queue.produce("a1", 0)
    for _ in range(LIMITS.max_attempts):
        queue.lease(poison)
        queue.crash()
    assert queue.state(poison) == "expired"


def test_debts_weights_and_policy_versions_survive_a_crash(queue):
    queue.queue.set_weight("a", 3)
    for step in range(2):
        partition_id = queue.produce("a1", step)
        queue.complete(partition_id, queue.lease(partition_id), charge_us=1_000)
    before = queue.queue.former.dump()
    queue.crash()
    assert queue.queue.former.dump() == before
    assert queue.queue.policy_version("a1") == 2


def test_a_dump_of_another_format_is_refused():
    queue = make_queue()
    with pytest.raises(InvalidRequest, match="format = 99"):
        type(queue).load(queue.dump() | {"format": 99}, LIMITS, **KNOBS)
