"""Memory is bounded by named refusals, before and while a partition is produced."""

import pytest

from gpu_runtime.scheduler.errors import (
    InFlightBound,
    QueueFull,
)
from gpu_runtime.scheduler.training_queue import QueueLimits
from tests.support.scheduling import LIMITS, AuditedQueue

TTL_US = LIMITS.lease_ttl_us


@pytest.fixture
def queue() -> AuditedQueue:
    return AuditedQueue()


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
    assert queue.state(partition_id) == "ready"
