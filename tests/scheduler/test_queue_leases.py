"""Leases through the queue: late workers have no effect, and every ending returns the bytes."""

import pytest

from gpu_runtime.scheduler.errors import (
    InvalidTransition,
    QueueFull,
    StaleEpoch,
)
from gpu_runtime.scheduler.training_queue import Freshness, QueueLimits
from tests.support.scheduling import LIMITS, AuditedQueue

TTL_US = LIMITS.lease_ttl_us


@pytest.fixture
def queue() -> AuditedQueue:
    return AuditedQueue()


def test_an_expired_lease_returns_the_partition_to_ready(queue):
    partition_id = queue.produce("a1", 0)
    late = queue.lease(partition_id)
    queue.expire(after_us=TTL_US)
    assert queue.state(partition_id) == "ready"
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
    assert queue.state(partition_id) == "leased"


def test_a_partition_whose_workers_go_silent_three_times_ends_and_takes_the_later_steps_with_it(queue):
    poison, later = queue.produce("a1", 0), queue.produce("a1", 1)
    for _ in range(LIMITS.max_attempts):
        queue.lease(poison)
        queue.expire(after_us=TTL_US)
    assert (queue.state(poison), queue.queue.job(poison).reason) == ("expired", "attempts_exhausted")
    assert (queue.state(later), queue.queue.job(later).reason) == ("cancelled", "earlier_step_failed")


def test_a_released_batch_mate_runs_again_and_loses_no_attempt(queue):
    partition_id = queue.produce("a1", 0)
    for _ in range(2 * LIMITS.max_attempts):
        queue.release(partition_id, queue.lease(partition_id))
    assert queue.queue.job(partition_id).attempts == 0
    queue.complete(partition_id, queue.lease(partition_id))


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
    assert (queue.state(hung), queue.state(later)) == ("failed", "cancelled")
    assert queue.queue.in_flight("a1") == 0


def test_cancel_ends_everything_of_the_job_and_nothing_else(queue):
    mine = [queue.produce("a1", 0), queue.produce("a1", 1), queue.reserve("a1", 2)]
    other = queue.produce("a2", 0)
    queue.next_group(after_us=100)
    assert queue.queue.cancel_job("a1", reason="cancelled_by_tenant") == tuple(mine)
    assert {queue.state(partition_id) for partition_id in mine} == {"cancelled"}
    assert queue.state(other) == "leased"
    assert queue.queue.cancel_job("a1", reason="again") == ()


def test_a_cancelled_job_leaves_no_policy_version_behind(queue):
    queue.mount("a1", 5)
    queue.cancel("a1")
    assert queue.queue.policy_version("a1") == 0


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
    assert queue.state(partition_id) == end
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
