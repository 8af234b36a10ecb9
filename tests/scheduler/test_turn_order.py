"""Whose turn it is: steps in order, tenants by fairness, data while it is fresh."""

import pytest

from gpu_runtime.scheduler.errors import (
    InvalidTransition,
    StalenessBound,
)
from gpu_runtime.scheduler.training_queue import Freshness, Purpose
from tests.support.scheduling import KNOBS, LIMITS, AuditedQueue, leased_ids

TTL_US = LIMITS.lease_ttl_us


@pytest.fixture
def queue() -> AuditedQueue:
    return AuditedQueue()


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
    assert queue.state(later) == "ready"


def test_an_earlier_step_reserved_late_goes_first(queue):
    later = queue.produce("a1", 5)
    earlier = queue.reserve("a1", 4)
    assert queue.next_group(after_us=100) is None
    queue.put(earlier)
    queue.ready(earlier)
    assert leased_ids(queue.next_group(after_us=100)) == [earlier]
    assert queue.state(later) == "ready"


def test_an_earlier_step_that_comes_while_a_later_one_is_leased_waits_for_it(queue):
    later = queue.produce("a1", 5)
    epoch = queue.lease(later)
    earlier = queue.produce("a1", 4)
    assert queue.next_group(after_us=100) is None
    queue.complete(later, epoch)
    assert leased_ids(queue.next_group(after_us=100)) == [earlier]


def test_a_failure_takes_later_steps_with_it_but_no_earlier_one(queue):
    failing, later = queue.produce("a1", 5), queue.produce("a1", 6)
    epoch = queue.lease(failing)
    earlier = queue.produce("a1", 4)
    queue.fail(failing, epoch)
    assert queue.state(later) == "cancelled"
    assert leased_ids(queue.next_group(after_us=100)) == [earlier]


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


def test_a_rollout_whose_result_would_be_too_old_is_not_started(queue):
    fresh = Freshness(behaviour_version=0, max_staleness=1)
    queue.reserve("a1", 0, freshness=fresh)
    queue.reserve("a1", 1, freshness=fresh)
    with queue.refused(StalenessBound):
        queue.reserve("a1", 2, freshness=fresh)
    queue.reserve("a1", 2, freshness=Freshness(behaviour_version=1, max_staleness=1))


def test_an_update_of_the_same_step_is_ahead_and_one_of_a_later_step_is_not(queue):
    fresh = Freshness(behaviour_version=0, max_staleness=0)
    queue.reserve("a1", 5, freshness=fresh)
    with queue.refused(StalenessBound):
        queue.reserve("a1", 5, freshness=fresh)
    queue.reserve("a1", 4, freshness=fresh)


def test_evaluations_ahead_make_nothing_older(queue):
    fresh = Freshness(behaviour_version=0, max_staleness=0)
    queue.reserve("a1", 0, purpose=Purpose.EVALUATE)
    queue.reserve("a1", 0, freshness=fresh)


def test_data_that_became_too_old_is_dropped_with_a_reason_and_the_next_goes_on(queue):
    old = queue.produce("a1", 0, freshness=Freshness(behaviour_version=0, max_staleness=1))
    fresh = queue.produce("a1", 1, freshness=Freshness(behaviour_version=2, max_staleness=1))
    queue.mount("a1", 2)
    assert (queue.state(old), queue.queue.job(old).reason) == ("dropped_stale", "stale")
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
