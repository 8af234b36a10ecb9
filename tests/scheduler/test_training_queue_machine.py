"""The training queue under every order of events Hypothesis can think of, all invariants checked after each."""

from contextlib import nullcontext

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gpu_runtime.scheduler.errors import (
    InFlightBound,
    InvalidTransition,
    QueueFull,
    SchedulerError,
    StaleEpoch,
    StalenessBound,
    UnknownPartition,
)
from gpu_runtime.scheduler.states import IN_PRODUCTION
from gpu_runtime.scheduler.training_queue import Freshness, Purpose, QueueLimits, TrainingJobState
from tests.support.scheduling import KNOBS, AuditedQueue

JOBS = ("a1", "a2", "b1", "c1")  # tenants a, b and c; a has two jobs
LIMITS = QueueLimits(in_flight_per_job=3, bytes_per_tenant=120, bytes_total=250, lease_ttl_us=100, max_attempts=2)

jobs = st.sampled_from(JOBS)
orders = st.tuples(jobs, st.sampled_from([0, 0, 0, 3]))  # a new step, or one from before
sizes = st.integers(1, 60)
charges = st.integers(0, 5_000)
index = st.integers(0, 1_000_000)


class TrainingQueueMachine(RuleBasedStateMachine):
    """The model knows little: which epochs are live, what is on disk, and what was consumed."""

    def __init__(self) -> None:
        super().__init__()
        self.audited = AuditedQueue(limits=LIMITS, knobs=KNOBS | {"batch_limit_tokens": 40, "window_us": 300})
        self.granted: list[tuple[str, int]] = []  # every lease ever, live or not
        self.steps = dict.fromkeys(JOBS, 10)  # next step of each job

    @initialize(work=st.lists(orders, max_size=12))
    def begin_with_some_work(self, work):
        self.produce(work)

    # --- production

    @rule(
        job_id=jobs,
        back=st.integers(0, 2),
        purpose=st.sampled_from(Purpose),
        group_key=st.sampled_from(["base", "other"]),
        priority=st.integers(0, 2),
        tokens=st.integers(1, 60),
        age=st.none() | st.tuples(st.integers(0, 2), st.integers(0, 3)),
        room=st.integers(0, 40),
    )
    def reserve(self, job_id, back, purpose, group_key, priority, tokens, age, room):
        step = self.steps[job_id] - back
        version = self.audited.queue.policy_version(job_id)
        freshness = age and Freshness(behaviour_version=max(0, version - age[0]), max_staleness=age[1])
        fields = {"purpose": purpose, "group_key": group_key, "priority": priority, "tokens": tokens}
        with self.audited.may_refuse(InFlightBound, QueueFull, StalenessBound):
            self.audited.reserve(job_id, step, freshness=freshness, bytes_expected=room, **fields)
            self.steps[job_id] += 1

    @precondition(lambda self: self.audited.seen)
    @rule(at=index, size=sizes)
    def put(self, at, size):
        with self.audited.may_refuse(QueueFull, InvalidTransition, UnknownPartition):
            self.audited.put(self.pick(at), size)

    @precondition(lambda self: self.audited.seen)
    @rule(at=index, stage=st.sampled_from(IN_PRODUCTION))
    def advance(self, at, stage):
        with self.audited.may_refuse(InvalidTransition, UnknownPartition):
            self.audited.advance(self.pick(at), stage)

    @precondition(lambda self: self.audited.seen)
    @rule(at=index)
    def ready(self, at):
        with self.audited.may_refuse(InvalidTransition, UnknownPartition):
            self.audited.ready(self.pick(at))

    @rule(work=st.lists(orders, min_size=1, max_size=8))
    def produce_ready_partitions(self, work):
        self.produce(work)

    def produce(self, work):
        for job_id, back in work:
            partition_id = None
            with self.audited.may_refuse(InFlightBound, QueueFull):
                partition_id = self.audited.reserve(job_id, self.steps[job_id] - back)
                self.steps[job_id] += 1
            with self.audited.may_refuse(QueueFull, UnknownPartition):
                self.audited.put(partition_id)
                self.audited.ready(partition_id)

    @precondition(lambda self: self.audited.seen)
    @rule(at=index)
    def abandon(self, at):
        with self.audited.may_refuse(InvalidTransition, UnknownPartition):
            self.audited.abandon(self.pick(at))

    @rule(at=index)
    def reserving_a_known_id_is_refused(self, at):
        known = self.audited.queue.jobs()
        if known:
            job = known[at % len(known)]
            fields = {"purpose": job.purpose, "group_key": "base", "priority": 0, "samples": 1, "tokens": 1}
            with self.audited.refused(SchedulerError):
                self.audited.queue.reserve(
                    now_us=0, partition_id=job.partition_id, tenant_id="z", job_id="z1", step=0, **fields
                )

    # --- consumption

    @rule(wait_us=st.sampled_from([0, 5, 50]))
    def lease_a_group(self, wait_us):
        self.next_group(wait_us)

    def next_group(self, wait_us):
        group = self.audited.next_group(after_us=wait_us)
        if group is not None:
            self.granted += [(leased.job.partition_id, leased.epoch) for leased in group.leases]
        return group

    @precondition(lambda self: self.granted)
    @rule(at=index)
    def renew(self, at):
        partition_id, epoch = self.lease(at)
        job = self.audited.seen[partition_id]
        overdue = job.lease is not None and job.lease.expires_us <= self.audited.now_us
        with self.stale_unless(self.is_live(partition_id, epoch) and not overdue):
            self.audited.renew(partition_id, epoch)

    @precondition(lambda self: self.granted)
    @rule(at=index)
    def release(self, at):
        partition_id, epoch = self.lease(at)
        with self.stale_unless(self.is_live(partition_id, epoch)):
            self.audited.release(partition_id, epoch)

    @precondition(lambda self: self.granted)
    @rule(at=index, charge_us=charges)
    def complete(self, at, charge_us):
        partition_id, epoch = self.lease(at)
        with self.stale_unless(self.is_live(partition_id, epoch)):
            self.audited.complete(partition_id, epoch, charge_us)

    @precondition(lambda self: self.granted)
    @rule(charge_us=charges)
    def complete_the_latest(self, charge_us):
        self.complete(at=-1, charge_us=charge_us)

    @rule(groups=st.lists(st.lists(charges, min_size=1, max_size=4), min_size=1, max_size=4))
    def work(self, groups):
        """A worker that does nothing wrong; the store clears behind it."""
        for charges_us in groups:
            group = self.next_group(wait_us=50)
            for at, leased in enumerate(group.leases if group else ()):
                self.audited.complete(leased.job.partition_id, leased.epoch, charges_us[at % len(charges_us)])
        for partition_id in self.audited.queue.awaiting_clear():
            self.audited.clear(partition_id)

    @precondition(lambda self: self.granted)
    @rule(at=index, charge_us=charges)
    def fail(self, at, charge_us):
        partition_id, epoch = self.lease(at)
        with self.stale_unless(self.is_live(partition_id, epoch)):
            self.audited.fail(partition_id, epoch, charge_us)

    # --- everything else that happens

    @rule(after_us=st.sampled_from([0, 30, 100]))
    def expire(self, after_us):
        self.audited.expire(after_us=after_us)

    @rule(job_id=jobs)
    def cancel(self, job_id):
        self.audited.cancel(job_id)
        assert self.audited.queue.in_flight(job_id) == 0

    @rule(at=index)
    def clear(self, at):
        waiting = self.audited.queue.awaiting_clear()
        if waiting:
            self.audited.clear(waiting[at % len(waiting)])

    @rule(at=index)
    def clearing_what_is_needed_is_refused(self, at):
        needed = [job.partition_id for job in self.audited.queue.jobs() if not job.ended]
        if needed:
            with self.audited.refused(InvalidTransition):
                self.audited.queue.cleared(needed[at % len(needed)])

    @rule(in_weights=st.sets(st.integers(0, 3)))
    def crash_and_reload(self, in_weights):
        leased = self.audited.in_state(TrainingJobState.LEASED)
        self.audited.crash(consumed=[partition_id for at, partition_id in enumerate(leased) if at in in_weights])
        assert not self.audited.in_state(TrainingJobState.LEASED, *IN_PRODUCTION)

    @rule(job_id=jobs, ahead=st.integers(0, 3))
    def mount_newer_weights(self, job_id, ahead):
        with self.audited.may_refuse(InvalidTransition):
            self.audited.mount(job_id, self.audited.queue.policy_version(job_id) + ahead)

    @rule(tenant_id=st.sampled_from("abc"), weight=st.integers(1, 4))
    def set_weight(self, tenant_id, weight):
        self.audited.queue.set_weight(tenant_id, weight)
        self.audited.check()

    def teardown(self):
        self.audited.drain()

    # --- the model

    def pick(self, at: int) -> str:
        """Any partition ever reserved, mostly a recent one."""
        recent = list(self.audited.seen)[-12:]
        return recent[at % len(recent)]

    def lease(self, at: int) -> tuple[str, int]:
        """Any lease ever granted, mostly a recent one."""
        recent = self.granted[-8:]
        return recent[at % len(recent)]

    def stale_unless(self, live: bool):
        return nullcontext() if live else self.audited.refused(StaleEpoch)

    def is_live(self, partition_id: str, epoch: int) -> bool:
        return self.audited.live.get(partition_id) == epoch


TestTrainingQueue = TrainingQueueMachine.TestCase
TestTrainingQueue.settings = settings(max_examples=200, stateful_step_count=50, deadline=None, derandomize=True)
