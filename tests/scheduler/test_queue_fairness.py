"""Charges, weights and wake-ups as a service sees them."""

import pytest

from gpu_runtime.scheduler.errors import (
    InvalidRequest,
    StaleEpoch,
)
from tests.support.scheduling import KNOBS, LIMITS, AuditedQueue

TTL_US = LIMITS.lease_ttl_us


@pytest.fixture
def queue() -> AuditedQueue:
    return AuditedQueue()


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
