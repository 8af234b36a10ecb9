"""A training job's life, from reserve to cleared."""

from itertools import pairwise

import pytest

from gpu_runtime.scheduler.errors import (
    DuplicatePartition,
    InvalidRequest,
    InvalidTransition,
    UnknownPartition,
)
from gpu_runtime.scheduler.job_table import HISTORY_MAX
from gpu_runtime.scheduler.states import IN_PRODUCTION, TERMINAL, TRANSITIONS
from gpu_runtime.scheduler.training_queue import Purpose, QueueLimits, TrainingJobState
from tests.support.scheduling import LIMITS, AuditedQueue

TTL_US = LIMITS.lease_ttl_us


@pytest.fixture
def queue() -> AuditedQueue:
    return AuditedQueue()


def test_a_partition_goes_from_reserve_to_cleared(queue):
    partition_id = queue.reserve("a1", 0)
    seen = [queue.state(partition_id)]
    queue.put(partition_id, 7)
    seen.append(queue.state(partition_id))
    for stage in (TrainingJobState.COMPUTING_LOGPROB, TrainingJobState.COMPUTING_ADVANTAGE):
        queue.advance(partition_id, stage)
        seen.append(queue.state(partition_id))
    queue.put(partition_id, 3)
    queue.ready(partition_id)
    seen.append(queue.state(partition_id))
    epoch = queue.lease(partition_id)
    seen.append(queue.state(partition_id))
    queue.complete(partition_id, epoch)
    seen.append(queue.state(partition_id))
    assert seen == [
        "reserved", "producing", "computing_logprob", "computing_advantage", "ready", "leased", "completed"
    ]  # fmt: skip
    assert queue.queue.job(partition_id).clearing
    assert queue.queue.live_bytes() == 10
    queue.clear(partition_id)
    assert not queue.queue.job(partition_id).clearing
    assert queue.queue.live_bytes() == 0


def test_every_state_is_in_the_table_and_every_ending_is_final():
    assert TRANSITIONS.keys() == set(TrainingJobState)
    assert all(not TRANSITIONS[ended] for ended in TERMINAL)
    reached = set().union(*TRANSITIONS.values())
    assert reached == set(TrainingJobState) - {TrainingJobState.RESERVED}


def test_production_does_not_go_backwards(queue):
    partition_id = queue.reserve("a1", 0)
    queue.advance(partition_id, TrainingJobState.COMPUTING_ADVANTAGE)
    with queue.refused(InvalidTransition):
        queue.advance(partition_id, TrainingJobState.COMPUTING_LOGPROB)


def test_an_empty_partition_is_not_ready(queue):
    partition_id = queue.reserve("a1", 0)
    with queue.refused(InvalidTransition):
        queue.ready(partition_id)


@pytest.mark.parametrize("after", ["ready", "leased", "completed", "cancelled"])
def test_nothing_can_be_put_into_a_partition_that_is_complete_or_ended(queue, after):
    partition_id = queue.produce("a1", 0)
    if after in ("leased", "completed"):
        epoch = queue.lease(partition_id)
    if after == "completed":
        queue.complete(partition_id, epoch)
    if after == "cancelled":
        queue.cancel("a1")
    with queue.refused(InvalidTransition):
        queue.put(partition_id)


def test_a_partition_id_is_used_once(queue):
    partition_id = queue.produce("a1", 0)
    queue.complete(partition_id, queue.lease(partition_id))
    with queue.refused(DuplicatePartition):
        queue.reserve("a1", 1, partition_id=partition_id)


def test_an_unknown_partition_is_named(queue):
    with pytest.raises(UnknownPartition, match="ghost"):
        queue.queue.job("ghost")


@pytest.mark.parametrize(
    ("field", "value"), [("step", -1), ("samples", 0), ("tokens", 0), ("bytes_expected", -1), ("group_key", "")]
)
def test_bad_fields_are_refused_by_name(queue, field, value):
    with pytest.raises(InvalidRequest, match=f"{field} = {value!r} is not allowed"):
        queue.reserve("a1", **{"step": 0, field: value})
    assert queue.queue.in_flight("a1") == 0


@pytest.mark.parametrize("field", ["in_flight_per_job", "bytes_total", "lease_ttl_us", "max_attempts"])
def test_limits_must_leave_room_for_something(field):
    values = {"bytes_per_tenant": 1, "bytes_total": 1, "lease_ttl_us": 1}
    with pytest.raises(InvalidRequest, match=f"{field} = 0"):
        QueueLimits(**values | {field: 0})


def test_ended_partitions_are_forgotten_after_a_while_and_live_ones_never(queue):
    kept = queue.reserve("b1", 0)
    fields = {"tenant_id": "a", "job_id": "a1", "purpose": Purpose.TRAIN, "group_key": "base"}
    fields |= {"priority": 5, "samples": 1, "tokens": 1}
    for at in range(HISTORY_MAX + 5):
        queue.queue.reserve(now_us=0, partition_id=f"p{at}", step=at, **fields)
        queue.queue.cancel_job("a1", reason="cancelled_by_tenant")
    assert len(queue.queue.jobs()) == HISTORY_MAX + 1
    assert queue.state(kept) == "reserved"


def test_production_states_are_listed_in_order():
    for earlier, later in pairwise(IN_PRODUCTION):
        assert later in TRANSITIONS[earlier]
        assert earlier not in TRANSITIONS[later]
