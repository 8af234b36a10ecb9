"""The life of a training job, one promise per test."""

import pytest

from gpu_runtime.scheduler.errors import (
    DuplicatePartition,
    InFlightBound,
    InvalidRequest,
    InvalidTransition,
    QueueFull,
    StaleEpoch,
    StalenessBound,
    UnknownPartition,
)
from gpu_runtime.scheduler.job_table import HISTORY_MAX
from gpu_runtime.scheduler.states import IN_PRODUCTION, TERMINAL, TRANSITIONS
from gpu_runtime.scheduler.training_queue import Freshness, Purpose, QueueLimits, TrainingJobState
from tests.support.scheduling import KNOBS, LIMITS, AuditedQueue, make_queue

TTL_US = LIMITS.lease_ttl_us


@pytest.fixture
def queue() -> AuditedQueue:
    return AuditedQueue()


def state(queue: AuditedQueue, partition_id: str) -> str:
    return str(queue.queue.job(partition_id).state)


def leased_ids(group) -> list[str]:
    return [leased.job.partition_id for leased in group.leases] if group else []


# --- one life -------------------------------------------------------------------------------------------------------


def test_a_partition_goes_from_reserve_to_cleared(queue):
    partition_id = queue.reserve("a1", 0)
    seen = [state(queue, partition_id)]
    queue.put(partition_id, 7)
    seen.append(state(queue, partition_id))
    for stage in (TrainingJobState.COMPUTING_LOGPROB, TrainingJobState.COMPUTING_ADVANTAGE):
        queue.advance(partition_id, stage)
        seen.append(state(queue, partition_id))
    queue.put(partition_id, 3)
    queue.ready(partition_id)
    seen.append(state(queue, partition_id))
    epoch = queue.lease(partition_id)
    seen.append(state(queue, partition_id))
    queue.complete(partition_id, epoch)
    seen.append(state(queue, partition_id))
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
        queue.queue.reserve(
            now_us=0, partition_id=partition_id, tenant_id="a", job_id="a1", purpose=Purpose.TRAIN,
            group_key="base", priority=5, step=1, samples=1, tokens=1,
        )  # fmt: skip


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
    kept = queue.queue.reserve(
        now_us=0, partition_id="kept", tenant_id="b", job_id="b1", purpose=Purpose.TRAIN,
        group_key="base", priority=5, step=0, samples=1, tokens=1,
    )  # fmt: skip
    for at in range(HISTORY_MAX + 5):
        queue.queue.reserve(
            now_us=0, partition_id=f"p{at}", tenant_id="a", job_id="a1", purpose=Purpose.TRAIN,
            group_key="base", priority=5, step=at, samples=1, tokens=1,
        )  # fmt: skip
        queue.queue.cancel_job("a1", reason="cancelled_by_tenant")
    assert len(queue.queue.jobs()) == HISTORY_MAX + 1
    assert queue.queue.job(kept.partition_id) == kept


# --- order ----------------------------------------------------------------------------------------------------------


def test_a_jobs_steps_are_consumed_strictly_in_order(queue):
    third, first, second = (queue.produce("a1", step) for step in (2, 0, 1))
    done = []
    while group := queue.next_group(after_us=5):
        for leased in group.leases:
            done.append(leased.job.partition_id)
            queue.complete(leased.job.partition_id, leased.epoch)
    assert done == [first, second, third]


def test_a_ready_step_waits_for_an_earlier_one_still_in_production(queue):
    earlier = queue.reserve("a1", 0)
    later = queue.produce("a1", 1)
    assert queue.next_group(after_us=100) is None
    queue.put(earlier)
    queue.ready(earlier)
    assert leased_ids(queue.next_group(after_us=100)) == [earlier]
    assert queue.next_group(after_us=100) is None, "none of a job is leased while another one is"
    assert state(queue, later) == "ready"


def test_an_earlier_step_reserved_late_goes_first(queue):
    later = queue.produce("a1", 5)
    earlier = queue.reserve("a1", 4)
    assert queue.next_group(after_us=100) is None
    queue.put(earlier)
    queue.ready(earlier)
    assert leased_ids(queue.next_group(after_us=100)) == [earlier]
    assert state(queue, later) == "ready"


def test_partitions_of_one_step_run_in_order_of_reservation(queue):
    train = queue.produce("a1", 3)
    evaluate = queue.produce("a1", 3, purpose=Purpose.EVALUATE)
    assert leased_ids(queue.next_group(after_us=100)) == [train]
    queue.complete(train, queue.live[train])
    assert leased_ids(queue.next_group(after_us=100)) == [evaluate]


def test_jobs_of_one_tenant_and_of_others_share_a_group(queue):
    ids = {queue.produce(job_id, 0) for job_id in ("a1", "a2", "b1")}
    assert set(leased_ids(queue.next_group(after_us=100))) == ids


def test_only_one_class_is_in_a_group(queue):
    queue.produce("a1", 0, group_key="base-7b")
    queue.produce("b1", 0, group_key="base-2b")
    assert len(queue.next_group(after_us=100).leases) == 1
    assert len(queue.next_group(after_us=100).leases) == 1


def test_the_tenants_own_priority_decides_among_its_jobs_only():
    queue = AuditedQueue(knobs=KNOBS | {"batch_limit_tokens": 10})
    low, high = queue.produce("a1", 0, priority=1), queue.produce("a2", 0, priority=9)
    other = queue.produce("b1", 0, priority=0)
    order = [leased_ids(queue.next_group(after_us=100))[0] for _ in range(3)]
    assert order == [high, other, low]


def test_the_nearest_staleness_deadline_goes_first_at_equal_priority():
    queue = AuditedQueue(knobs=KNOBS | {"batch_limit_tokens": 10})
    unageing = queue.produce("a1", 0)
    relaxed = queue.produce("a2", 0, freshness=Freshness(behaviour_version=0, max_staleness=8))
    urgent = queue.produce("a3", 0, freshness=Freshness(behaviour_version=0, max_staleness=2))
    assert [leased_ids(queue.next_group(after_us=100))[0] for _ in range(3)] == [urgent, relaxed, unageing]


# --- leases ---------------------------------------------------------------------------------------------------------


def test_an_expired_lease_returns_the_partition_to_ready(queue):
    partition_id = queue.produce("a1", 0)
    late = queue.lease(partition_id)
    queue.expire(after_us=TTL_US)
    assert state(queue, partition_id) == "ready"
    fresh = queue.lease(partition_id)
    with queue.refused(StaleEpoch):
        queue.complete(partition_id, late)
    queue.complete(partition_id, fresh)


@pytest.mark.parametrize("effect", ["renew", "release", "complete", "fail"])
@pytest.mark.parametrize("fate", ["expired", "released", "completed", "cancelled", "crashed"])
def test_a_late_worker_has_no_effect_of_any_kind(queue, effect, fate):
    partition_id = queue.produce("a1", 0)
    epoch = queue.lease(partition_id)
    match fate:
        case "expired":
            queue.expire(after_us=TTL_US)
        case "released":
            queue.release(partition_id, epoch)
        case "completed":
            queue.complete(partition_id, epoch)
        case "cancelled":
            queue.cancel("a1")
        case "crashed":
            queue.crash()
    with queue.refused(StaleEpoch):
        getattr(queue, effect)(partition_id, epoch)


def test_a_renewed_lease_survives_the_sweep(queue):
    partition_id = queue.produce("a1", 0)
    epoch = queue.lease(partition_id)
    queue.now_us += TTL_US - 1
    queue.renew(partition_id, epoch)
    queue.expire(after_us=1)
    assert state(queue, partition_id) == "leased"


def test_a_partition_whose_workers_go_silent_three_times_ends_and_takes_the_later_steps_with_it(queue):
    poison, later = queue.produce("a1", 0), queue.produce("a1", 1)
    for _ in range(LIMITS.max_attempts):
        queue.lease(poison)
        queue.expire(after_us=TTL_US)
    assert (state(queue, poison), queue.queue.job(poison).reason) == ("expired", "attempts_exhausted")
    assert (state(queue, later), queue.queue.job(later).reason) == ("cancelled", "earlier_step_failed")


def test_a_released_batch_mate_runs_again_and_loses_no_attempt(queue):
    partition_id = queue.produce("a1", 0)
    for _ in range(2 * LIMITS.max_attempts):
        queue.release(partition_id, queue.lease(partition_id))
    assert queue.queue.job(partition_id).attempts == 0
    queue.complete(partition_id, queue.lease(partition_id))


# --- endings --------------------------------------------------------------------------------------------------------


def test_a_failure_ends_that_job_alone(queue):
    failing, later, mate = queue.produce("a1", 0), queue.produce("a1", 1), queue.produce("b1", 0)
    queue.next_group(after_us=100)
    ended = queue.queue.fail(failing, queue.live[failing], reason="non_finite_loss", charge_us=50)
    assert ended == (failing, later)
    assert queue.queue.job(failing).reason == "non_finite_loss"
    queue.complete(mate, queue.live[mate])


def test_an_abandoned_rollout_ends_the_later_ones(queue):
    hung, later = queue.reserve("a1", 0), queue.produce("a1", 1)
    queue.abandon(hung)
    assert (state(queue, hung), state(queue, later)) == ("failed", "cancelled")
    assert queue.queue.in_flight("a1") == 0


def test_cancel_ends_everything_of_the_job_and_nothing_else(queue):
    mine = [queue.produce("a1", 0), queue.produce("a1", 1), queue.reserve("a1", 2)]
    other = queue.produce("a2", 0)
    queue.next_group(after_us=100)
    assert queue.queue.cancel_job("a1", reason="cancelled_by_tenant") == tuple(mine)
    assert {state(queue, partition_id) for partition_id in mine} == {"cancelled"}
    assert state(queue, other) == "leased"
    assert queue.queue.cancel_job("a1", reason="again") == ()


@pytest.mark.parametrize("end", ["completed", "failed", "expired", "dropped_stale", "cancelled"])
def test_bytes_are_returned_in_every_terminal_state(end):
    queue = AuditedQueue(limits=QueueLimits(bytes_per_tenant=10, bytes_total=10, lease_ttl_us=TTL_US, max_attempts=1))
    partition_id = queue.produce("a1", 0, freshness=Freshness(behaviour_version=0, max_staleness=0))
    if end == "dropped_stale":
        queue.mount("a1", 1)
    elif end == "cancelled":
        queue.cancel("a1")
    else:
        epoch = queue.lease(partition_id)
        {"completed": queue.complete, "failed": queue.fail, "expired": lambda *_: queue.expire(after_us=TTL_US)}[end](
            partition_id, epoch
        )
    assert state(queue, partition_id) == end
    assert queue.queue.awaiting_clear() == (partition_id,)
    with queue.refused(QueueFull):
        queue.reserve("a2", 0)
    queue.clear(partition_id)
    queue.clear(partition_id)  # twice is no error
    assert queue.queue.awaiting_clear() == ()
    queue.produce("a2", 0)


def test_bytes_that_are_still_needed_cannot_be_cleared(queue):
    partition_id = queue.produce("a1", 0)
    with queue.refused(InvalidTransition):
        queue.queue.cleared(partition_id)


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_job_has_only_so_many_partitions_in_flight(queue):
    for step in range(LIMITS.in_flight_per_job):
        queue.reserve("a1", step)
    with queue.refused(InFlightBound):
        queue.reserve("a1", 9)
    queue.reserve("a2", 0)


@pytest.mark.parametrize(("tenant", "reason"), [("a", "tenant_bytes"), ("b", "total_bytes")])
def test_retained_bytes_are_bounded_by_tenant_and_in_total(tenant, reason):
    queue = AuditedQueue(limits=QueueLimits(bytes_per_tenant=100, bytes_total=150, lease_ttl_us=TTL_US))
    queue.put(queue.reserve("a1", 0), 90)
    partition_id = queue.reserve(f"{tenant}2", 0)
    with pytest.raises(QueueFull) as refusal:
        queue.put(partition_id, 70)
    assert refusal.value.reason == reason
    queue.put(partition_id, 10)


def test_expected_bytes_are_kept_free_until_the_partition_is_complete():
    queue = AuditedQueue(limits=QueueLimits(bytes_per_tenant=100, bytes_total=100, lease_ttl_us=TTL_US))
    promised = queue.reserve("a1", 0, bytes_expected=80)
    other = queue.reserve("b1", 0)
    with queue.refused(QueueFull):
        queue.put(other, 21)
    queue.put(promised, 30)
    queue.put(promised, 50)
    with queue.refused(QueueFull):
        queue.put(promised, 21)
    queue.cancel("a1")
    queue.clear(promised)
    queue.put(other, 100)


def test_unused_expected_bytes_are_free_once_the_partition_is_ready():
    queue = AuditedQueue(limits=QueueLimits(bytes_per_tenant=100, bytes_total=100, lease_ttl_us=TTL_US))
    partition_id = queue.produce("a1", 0, bytes_expected=95)
    assert queue.queue.live_bytes() == 10
    queue.put(queue.reserve("b1", 0), 90)
    assert state(queue, partition_id) == "ready"


# --- staleness ------------------------------------------------------------------------------------------------------


def test_a_rollout_whose_result_would_be_too_old_is_not_started(queue):
    fresh = Freshness(behaviour_version=0, max_staleness=1)
    queue.reserve("a1", 0, freshness=fresh)
    queue.reserve("a1", 1, freshness=fresh)
    with queue.refused(StalenessBound):
        queue.reserve("a1", 2, freshness=fresh)
    queue.reserve("a1", 2, freshness=Freshness(behaviour_version=1, max_staleness=1))


def test_evaluations_ahead_make_nothing_older(queue):
    fresh = Freshness(behaviour_version=0, max_staleness=0)
    queue.reserve("a1", 0, purpose=Purpose.EVALUATE)
    queue.reserve("a1", 0, freshness=fresh)


def test_data_that_became_too_old_is_dropped_with_a_reason_and_the_next_goes_on(queue):
    old = queue.produce("a1", 0, freshness=Freshness(behaviour_version=0, max_staleness=1))
    fresh = queue.produce("a1", 1, freshness=Freshness(behaviour_version=2, max_staleness=1))
    queue.mount("a1", 2)
    assert (state(queue, old), queue.queue.job(old).reason) == ("dropped_stale", "stale")
    assert leased_ids(queue.next_group(after_us=100)) == [fresh]


def test_the_policy_version_counts_completed_updates_and_nothing_else(queue):
    queue.mount("a1", 7)
    for step, purpose in enumerate((Purpose.FIT, Purpose.TRAIN, Purpose.EVALUATE, Purpose.TRAIN)):
        partition_id = queue.produce("a1", step, purpose=purpose)
        queue.complete(partition_id, queue.lease(partition_id))
    assert queue.queue.policy_version("a1") == 9


def test_weights_are_not_replaced_under_a_leased_partition(queue):
    queue.lease(queue.produce("a1", 0))
    with queue.refused(InvalidTransition):
        queue.mount("a1", 3)


# --- crash and reload -----------------------------------------------------------------------------------------------


def test_a_crash_loses_production_and_keeps_what_was_ready(queue):
    ready, leased = queue.produce("a1", 0), queue.produce("b1", 0)
    queue.lease(leased)
    half, behind = queue.reserve("c1", 0), queue.produce("c1", 1)
    queue.put(half)
    queue.crash()
    assert [state(queue, partition_id) for partition_id in (ready, leased)] == ["ready", "ready"]
    assert (state(queue, half), queue.queue.job(half).reason) == ("failed", "runtime_restart")
    assert (state(queue, behind), queue.queue.job(behind).reason) == ("cancelled", "earlier_step_failed")
    assert set(queue.queue.awaiting_clear()) == {half, behind}
    queue.drain()


def test_what_the_weights_contain_is_not_consumed_again_after_a_crash(queue):
    contained, next_step = queue.produce("a1", 0), queue.produce("a1", 1)
    queue.lease(contained)
    queue.crash(consumed=[contained])
    assert state(queue, contained) == "completed"
    assert queue.queue.policy_version("a1") == 1
    assert leased_ids(queue.next_group(after_us=100)) == [next_step]


def test_a_partition_that_kills_the_runtime_each_time_ends(queue):
    poison = queue.produce("a1", 0)
    for _ in range(LIMITS.max_attempts):
        queue.lease(poison)
        queue.crash()
    assert state(queue, poison) == "expired"


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


# --- fairness through the queue -------------------------------------------------------------------------------------


def test_time_of_a_cancelled_job_still_counts_for_its_tenant(queue):
    """Otherwise cancelling just before the end would be free service."""
    partition_id = queue.produce("a1", 0)
    epoch = queue.lease(partition_id)
    queue.cancel("a1")
    with queue.refused(StaleEpoch):
        queue.complete(partition_id, epoch)
    queue.queue.charge("a", charge_us=700)
    assert queue.queue.former.fair.counter_us("a") == 700


def test_a_negative_charge_changes_nothing(queue):
    partition_id = queue.produce("a1", 0)
    epoch = queue.lease(partition_id)
    for effect in (queue.complete, queue.fail):
        with queue.refused(InvalidRequest):
            effect(partition_id, epoch, -1)


def test_weights_divide_a_device_between_tenants_with_many_steps_each():
    queue = AuditedQueue(knobs=KNOBS | {"batch_limit_tokens": 10, "window_us": 0})
    queue.queue.set_weight("b", 3)
    served, steps = {"a": 0, "b": 0}, {"a": 0, "b": 0}
    for _ in range(200):
        for tenant_id in "ab":
            if queue.queue.in_flight(f"{tenant_id}1") < 2:
                queue.produce(f"{tenant_id}1", steps[tenant_id])
                steps[tenant_id] += 1
        for leased in queue.next_group(after_us=5).leases:
            queue.complete(leased.job.partition_id, leased.epoch, charge_us=100)
            queue.clear(leased.job.partition_id)
            served[leased.job.tenant_id] += 1
    assert served == {"a": 50, "b": 150}


def test_the_queue_says_when_to_ask_again(queue):
    assert queue.queue.next_wakeup_us(0) is None
    queue.now_us = 100
    partition_id = queue.produce("a1", 0)
    assert queue.queue.next_wakeup_us(100) == 105
    queue.now_us = 105
    queue.lease(partition_id)
    granted_us = queue.queue.job(partition_id).lease.granted_us
    assert queue.queue.next_wakeup_us(granted_us) == granted_us + TTL_US


def test_depth_counts_what_is_ready_and_not_leased(queue):
    first = queue.produce("a1", 0)
    queue.produce("a1", 1)
    queue.reserve("b1", 0)
    assert queue.queue.depth() == 2
    queue.lease(first)
    assert queue.queue.depth() == 1
    assert queue.queue.in_flight("a1") == 2


def test_production_states_are_listed_in_order():
    for earlier, later in zip(IN_PRODUCTION, IN_PRODUCTION[1:], strict=False):
        assert later in TRANSITIONS[earlier]
        assert earlier not in TRANSITIONS[later]
