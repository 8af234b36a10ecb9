"""A training queue under audit, and a world of tenants in virtual time. No clock, no sleep: time is passed in."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpu_runtime.scheduler import invariants
from gpu_runtime.scheduler.errors import SchedulerError
from gpu_runtime.scheduler.states import IN_PRODUCTION
from gpu_runtime.scheduler.training_queue import (
    Group,
    Purpose,
    QueueLimits,
    TrainingJob,
    TrainingJobState,
    TrainingQueue,
)

LIMITS = QueueLimits(bytes_per_tenant=10_000, bytes_total=30_000, lease_ttl_us=1_000)
KNOBS = {"batch_limit_tokens": 100, "window_us": 1_000, "wait_us": 5}


def make_queue(limits: QueueLimits = LIMITS, **knobs: int) -> TrainingQueue:
    return TrainingQueue(limits, **KNOBS | knobs)


def leased_ids(group: Group | None) -> list[str]:
    return [leased.job.partition_id for leased in group.leases] if group else []


@dataclass
class AuditedQueue:
    """A real TrainingQueue with its store and trace beside it: every invariant is checked after each call."""

    limits: QueueLimits = LIMITS
    knobs: dict[str, int] = field(default_factory=lambda: dict(KNOBS))
    now_us: int = 0

    def __post_init__(self) -> None:
        self.queue = TrainingQueue(self.limits, **self.knobs)
        self.store: dict[str, int] = {}  # partition id -> bytes on disk
        self.live: dict[str, int] = {}  # partition id -> epoch that may still have effects
        self.epochs: list[int] = []
        self.consumptions: list[invariants.Consumption] = []
        self.seen: dict[str, TrainingJob] = {}  # last value of every row, forgotten ones too
        self.swept_us = 0
        self._made = 0

    def reserve(self, job_id: str, step: int, *, partition_id: str | None = None, **fields: Any) -> str:
        """Reserve a partition of a job, a new one unless its id is given; the job's tenant is its first letter."""
        self._made += 1
        partition_id = partition_id or f"{job_id}/{self._made}"
        defaults = {"purpose": Purpose.TRAIN, "group_key": "base", "priority": 5, "samples": 1, "tokens": 10}
        self.queue.reserve(
            now_us=self.now_us,
            partition_id=partition_id,
            tenant_id=job_id[0],
            job_id=job_id,
            step=step,
            **defaults | fields,
        )
        self.check()
        return partition_id

    def advance(self, partition_id: str, stage: TrainingJobState) -> None:
        self.queue.advance(partition_id, stage)
        self.check()

    def put(self, partition_id: str, size: int = 10) -> None:
        self.queue.queue_put(partition_id, bytes=size)
        self.store[partition_id] = self.store.get(partition_id, 0) + size
        self.check()

    def ready(self, partition_id: str) -> None:
        self.queue.mark_ready(partition_id, now_us=self.now_us)
        self.check()

    def produce(self, job_id: str, step: int, **fields: Any) -> str:
        """Reserve, put and mark ready."""
        partition_id = self.reserve(job_id, step, **fields)
        self.put(partition_id)
        self.ready(partition_id)
        return partition_id

    def next_group(self, *, after_us: int = 0) -> Group | None:
        self.now_us += after_us
        before = self.queue.jobs()
        group = self.queue.next_group(now_us=self.now_us)
        if group is not None:
            invariants.check_group(before, group)
            self.epochs += [leased.epoch for leased in group.leases]
            self.live |= {leased.job.partition_id: leased.epoch for leased in group.leases}
        self.check()
        return group

    def lease(self, partition_id: str) -> int:
        """Ask for groups, waiting as long as it pays, until this partition is leased; returns its epoch."""
        while partition_id not in self.live:
            group = self.next_group(after_us=self.knobs["wait_us"])
            assert group is not None, f"{partition_id} never had its turn"
        return self.live[partition_id]

    def renew(self, partition_id: str, epoch: int) -> None:
        self.queue.renew(partition_id, epoch, now_us=self.now_us)
        self.check()

    def release(self, partition_id: str, epoch: int) -> None:
        self.queue.release(partition_id, epoch)
        self.check()

    def complete(self, partition_id: str, epoch: int, charge_us: int = 100) -> None:
        job = self.seen[partition_id]
        version = self.queue.policy_version(job.job_id)
        self.queue.complete(partition_id, epoch, charge_us=charge_us)
        self.consumptions.append(invariants.Consumption(job=job, policy_version=version))
        self.check()

    def fail(self, partition_id: str, epoch: int, charge_us: int = 100) -> None:
        self.queue.fail(partition_id, epoch, reason="non_finite_loss", charge_us=charge_us)
        self.check()

    def abandon(self, partition_id: str) -> None:
        self.queue.abandon(partition_id, reason="environment_hung")
        self.check()

    def cancel(self, job_id: str) -> None:
        self.queue.cancel_job(job_id, reason="cancelled_by_tenant")
        self.check()

    def state(self, partition_id: str) -> str:
        return str(self.queue.job(partition_id).state)

    def expire(self, *, after_us: int = 0) -> None:
        self.now_us += after_us
        self.queue.expire_leases(self.now_us)
        self.swept_us = self.now_us
        self.check()

    def clear(self, partition_id: str) -> None:
        self.store.pop(partition_id, None)
        self.queue.cleared(partition_id)
        self.check()

    def mount(self, job_id: str, version: int) -> None:
        self.queue.set_policy_version(job_id, version)
        self.check()

    def crash(self, *, consumed: Collection[str] = ()) -> None:
        """Lose the process; the durable weights contain ``consumed``."""
        for partition_id in consumed:
            job = self.queue.job(partition_id)
            version = self.queue.policy_version(job.job_id)
            self.consumptions.append(invariants.Consumption(job=job, policy_version=version))
        state = json.loads(json.dumps(self.queue.dump()))
        self.queue = TrainingQueue.load(state, self.limits, **self.knobs, consumed=consumed)
        self.check()

    @contextmanager
    def may_refuse(self, *errors: type[SchedulerError]) -> Iterator[None]:
        """The call inside may be refused with one of these errors, and then must change nothing."""
        before = self.dump()
        try:
            yield
        except errors:
            unchanged = self.dump() == before
        else:
            return
        assert unchanged, f"a refusal with one of {errors} changed the queue"

    @contextmanager
    def refused(self, error: type[SchedulerError]) -> Iterator[None]:
        """The call inside must be refused with this error, and must change nothing."""
        before = self.dump()
        with pytest.raises(error):
            yield
        assert self.dump() == before, f"{error.__name__} changed the queue"

    def dump(self) -> dict[str, Any]:
        return self.queue.dump() | {"rows": self.queue.jobs(), "depth": self.queue.depth()}

    def in_state(self, *states: TrainingJobState) -> list[str]:
        return [job.partition_id for job in self.queue.jobs() if job.state in states]

    def check(self) -> None:
        self.seen |= {job.partition_id: job for job in self.queue.jobs()}
        leased = self.in_state(TrainingJobState.LEASED)
        self.live = {partition_id: epoch for partition_id, epoch in self.live.items() if partition_id in leased}
        invariants.audit(self.queue, store_bytes=sum(self.store.values()), swept_us=self.swept_us)
        invariants.check_consumed_once(self.consumptions, self.seen.values())
        invariants.check_freshness(self.consumptions)
        invariants.check_epochs(self.epochs)

    def drain(self) -> None:
        """Everything that can run does, everything else is given up, all bytes go back: nothing may be left."""
        self.expire(after_us=self.limits.lease_ttl_us)
        for partition_id in self.in_state(*IN_PRODUCTION):
            if not self.queue.job(partition_id).ended:
                self.abandon(partition_id)
        while self._run_group():
            pass
        assert self.queue.depth() == 0, "ready partitions never had their turn"
        for partition_id in self.queue.awaiting_clear():
            self.clear(partition_id)
        assert not self.store
        assert self.queue.live_bytes() == 0
        assert not self.queue.former.busy

    def _run_group(self) -> bool:
        group = self.next_group(after_us=self.knobs["wait_us"])
        for leased in group.leases if group else ():
            self.complete(leased.job.partition_id, leased.epoch)
        return group is not None
