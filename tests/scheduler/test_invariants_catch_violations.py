"""Negative controls: each invariant's checker catches a scheduler that breaks it.

Each test plants one fault in the real code, then lives an ordinary life that would pass without it.
"""

import pytest

from gpu_runtime.scheduler import invariants
from gpu_runtime.scheduler.accounting import Attribution, MeasuredStep
from gpu_runtime.scheduler.batch_former import BatchFormer
from gpu_runtime.scheduler.fair_share import FairShare
from gpu_runtime.scheduler.job_table import JobTable
from gpu_runtime.scheduler.leases import LeaseBook
from gpu_runtime.scheduler.step_order import StepOrder
from gpu_runtime.scheduler.tenant_heap import TenantHeap
from gpu_runtime.scheduler.training_queue import (
    Freshness,
    Group,
    LeasedJob,
    Purpose,
    TrainingJob,
    TrainingJobState,
    TrainingQueue,
)
from gpu_runtime.scheduler.turns import Turns
from tests.support.fair_world import Crowd, World
from tests.support.scheduling import LIMITS, AuditedQueue


def broken(invariant: str):
    return pytest.raises(invariants.InvariantBroken, match=invariant)


def test_the_lives_below_break_nothing_when_no_fault_is_planted():
    for life in (run_two_steps, expire_a_lease, crash_while_leased, stay_fresh, overtake, return_from_idle, ride):
        life()


# --- lives ----------------------------------------------------------------------------------------------------------


def run_two_steps() -> None:
    queue = AuditedQueue()
    first, second = queue.produce("a1", 0), queue.produce("a1", 1)
    other = queue.produce("b1", 0)
    for partition_id in (first, other, second):
        queue.complete(partition_id, queue.lease(partition_id))
        queue.clear(partition_id)
    queue.drain()


def overtake() -> None:
    """Two partitions of one job are ready before either is leased."""
    queue = AuditedQueue()
    queue.produce("a1", 0), queue.produce("a1", 1)
    assert len(queue.next_group(after_us=5).leases) == 1


def expire_a_lease() -> None:
    queue = AuditedQueue()
    partition_id = queue.produce("a1", 0)
    queue.lease(partition_id)
    queue.expire(after_us=LIMITS.lease_ttl_us)
    queue.complete(partition_id, queue.lease(partition_id))


def crash_while_leased() -> None:
    """The weights contain what the queue believes to be leased still; another job goes on."""
    queue = AuditedQueue()
    in_weights, other = queue.produce("a1", 0), queue.produce("b1", 0)
    queue.lease(in_weights)
    queue.crash(consumed=[in_weights])
    while group := queue.next_group(after_us=5):
        for leased in group.leases:
            queue.complete(leased.job.partition_id, leased.epoch)
    assert queue.queue.job(other).state is TrainingJobState.COMPLETED


def stay_fresh() -> None:
    """Newer weights are mounted while a rollout of version 0 waits."""
    queue = AuditedQueue()
    partition_id = queue.produce("a1", 0, freshness=Freshness(behaviour_version=0, max_staleness=1))
    queue.mount("a1", 2)
    if queue.queue.depth():
        queue.complete(partition_id, queue.lease(partition_id))


def fail_a_step() -> None:
    queue = AuditedQueue()
    partition_id = queue.produce("a1", 0)
    queue.fail(partition_id, queue.lease(partition_id))


def return_from_idle() -> None:
    steady = Crowd(tenant_id="steady", outstanding=40)
    sleeper = Crowd(tenant_id="sleeper", outstanding=40, bursts=((5_000_000, 1 << 60),))
    World((steady, sleeper)).run(8_000_000)


def ride() -> None:
    thin = Crowd(tenant_id="thin", outstanding=2, group_keys=("x",))
    fat = Crowd(tenant_id="fat", outstanding=64, group_keys=("x",))
    alone = Crowd(tenant_id="alone", outstanding=64, group_keys=("y",), weight=2)
    World((thin, fat, alone)).run(5_000_000)


# --- I1, I3, I6, I7, I8, I9, order ----------------------------------------------------------------------------------


def test_i1_a_row_that_keeps_its_lease_after_it_is_taken_back(monkeypatch):
    change = Turns.change

    def keep_lease(self, job, **values):
        return change(self, job, **values | {"lease": values.get("lease") or job.lease})

    monkeypatch.setattr(Turns, "change", keep_lease)
    with broken("I1 lease iff leased"):
        run_two_steps()


def test_i1_bytes_given_away_before_the_end(monkeypatch):
    take_back = Turns.take_back
    monkeypatch.setattr(
        Turns, "take_back", lambda self, job, attempts: self.change(take_back(self, job, attempts=attempts), bytes=0)
    )
    with broken("I1 bytes until ended"):
        expire_a_lease()


def test_i3_a_microsecond_lost_in_rounding():
    step = MeasuredStep(busy_us=10, shared_us=10, private_us={})
    with broken("I3 exact accounting"):
        invariants.check_accounting(step, Attribution(shares={"p": 3, "q": 3, "r": 3}, overhead_us=0))


def test_i3_overhead_paid_back_by_a_tenant():
    step = MeasuredStep(busy_us=10, shared_us=10, private_us={})
    with broken("I3 exact accounting"):
        invariants.check_accounting(step, Attribution(shares={"p": 12, "q": -2}, overhead_us=0))


def test_i6_a_restart_that_forgets_what_the_weights_contain(monkeypatch):
    load = TrainingQueue.load.__func__

    def forgetful(cls, state, limits, *, consumed, **knobs):
        return load(cls, state, limits, **knobs)

    monkeypatch.setattr(TrainingQueue, "load", classmethod(forgetful))
    with broken("I6 consumed once: partition .* was consumed 2 times"):
        crash_while_leased()


def test_i6_a_partition_completed_without_being_consumed(monkeypatch):
    monkeypatch.setattr(Turns, "lapse", lambda self, job, max_attempts: self.consume(job))
    with broken("I6 consumed once: .* never was"):
        expire_a_lease()


def test_i6_a_failure_without_a_reason(monkeypatch):
    end = Turns.end
    monkeypatch.setattr(Turns, "end", lambda self, job, state, reason: end(self, job, state, None))
    with broken("I6 reason given"):
        fail_a_step()


def test_i7_stale_data_used_by_an_update(monkeypatch):
    monkeypatch.setattr(Turns, "_slack", lambda self, job: 0)
    with broken("I7 staleness"):
        stay_fresh()


def test_i8_a_sweep_that_overlooks_expired_leases(monkeypatch):
    monkeypatch.setattr(LeaseBook, "lapsed", lambda self, now_us: [])
    with broken("I8 gone after TTL"):
        expire_a_lease()


def test_i8_a_worker_that_keeps_its_lease_after_the_end(monkeypatch):
    monkeypatch.setattr(LeaseBook, "revoke", lambda self, partition_id: None)
    with broken("I8 no lease without a row"):
        run_two_steps()


def test_i8_a_renewal_that_the_row_does_not_learn_of(monkeypatch):
    queue = AuditedQueue()
    partition_id = queue.produce("a1", 0)
    epoch = queue.lease(partition_id)
    queue.queue.leases.renew(partition_id, epoch, now_us=queue.now_us + 1)
    with broken("I8 one live epoch"):
        queue.check()


def test_i8_epochs_that_start_over_after_a_restart(monkeypatch):
    monkeypatch.setattr(LeaseBook, "start_after", lambda self, last_epoch: None)
    with broken("I8 epochs rise"):
        crash_while_leased()


def test_i8_two_leases_of_one_job():
    jobs = [leased_row("p", step=0, epoch=1), leased_row("q", step=1, epoch=2)]
    leases = LeaseBook(ttl_us=10)
    for job in jobs:
        leases.grant(job.partition_id, now_us=0)
    with broken("I8 one lease per job"):
        invariants.check_leases(jobs, leases, swept_us=0)


def test_i9_a_cleared_partition_that_stays_on_the_books(monkeypatch):
    monkeypatch.setattr(TrainingQueue, "cleared", lambda self, partition_id: None)
    with broken("I9 bytes"):
        run_two_steps()


def test_i9_a_counter_that_misses_a_change(monkeypatch):
    monkeypatch.setattr(JobTable, "_write", lambda self, old, new: self._jobs.__setitem__(new.partition_id, new))
    with broken("I9 bytes"):
        run_two_steps()


def test_a_later_step_overtaking_an_earlier_one(monkeypatch):
    partitions = StepOrder.partitions
    monkeypatch.setattr(StepOrder, "partitions", lambda self, job_id: partitions(self, job_id)[::-1])
    monkeypatch.setattr(invariants, "check_offers", lambda queue: None)
    with broken("step order"):
        overtake()


def test_two_partitions_of_one_job_in_a_group():
    jobs = [leased_row("p", step=0, epoch=1), leased_row("q", step=1, epoch=2)]
    leases = tuple(LeasedJob(job=job, epoch=job.lease.epoch) for job in jobs)
    with broken("one per job"):
        invariants.check_group(jobs, Group(leases=leases, group_key="base"))


def test_two_classes_in_a_group(monkeypatch):
    job = leased_row("p", step=0, epoch=1)
    with broken("one class per group"):
        invariants.check_group([job], Group(leases=(LeasedJob(job=job, epoch=1),), group_key="other"))


# --- I11: fairness --------------------------------------------------------------------------------------------------


def test_i11_a_next_step_that_is_never_offered(monkeypatch):
    monkeypatch.setattr(Turns, "consume", lambda self, job: self.end(job, TrainingJobState.COMPLETED, None))
    with broken("I11 work conserving"):
        run_two_steps()


def test_i11_an_estimate_kept_after_the_lease_is_gone(monkeypatch):
    discard = BatchFormer.discard
    monkeypatch.setattr(
        BatchFormer,
        "discard",
        lambda self, request_id: request_id in self.in_flight or discard(self, request_id),
    )
    with broken("I11 in flight"):
        expire_a_lease()


def test_i11_no_lift_on_return_from_idle(monkeypatch):
    monkeypatch.setattr(FairShare, "enter", lambda self, tenant_id: None)
    with broken("I11 lift"):
        return_from_idle()


def test_i11_no_lift_breaks_the_spread_too(monkeypatch):
    monkeypatch.setattr(FairShare, "enter", lambda self, tenant_id: None)
    monkeypatch.setattr(invariants, "check_entry", lambda former, tenant_id: None)
    monkeypatch.setattr(invariants, "check_virtual_time", lambda before_us, after_us: None)
    with broken("I11 spread"):
        return_from_idle()


def test_l1_virtual_time_that_falls(monkeypatch):
    lead = FairShare.lead

    def fall(self, tenant_id):
        self._virtual_us = 0
        return lead(self, tenant_id) - 1

    monkeypatch.setattr(FairShare, "lead", fall)
    monkeypatch.setattr(FairShare, "virtual_us", property(lambda self: -self._virtual_us))
    with broken("L1 virtual time"):
        ride()


def test_i11_riders_beyond_the_window():
    def unlimited(**knobs):
        return BatchFormer(**knobs | {"window_us": 1 << 60})

    thin = Crowd(tenant_id="thin", outstanding=2, group_keys=("x",))
    fat = Crowd(tenant_id="fat", outstanding=64, group_keys=("x",))
    with broken("I11 window"):
        World((thin, fat), make_former=unlimited).run(5_000_000)


def test_i11_the_most_served_tenant_leading(monkeypatch):
    monkeypatch.setattr(BatchFormer, "_leader", most_served)
    with broken("I11 least served leads"):
        ride()


def test_i11_a_leader_whose_later_request_goes_first(monkeypatch):
    def latest(self, tenant_id):
        mine = [request for request in self if request.tenant_id == tenant_id]
        return max(mine, key=lambda request: request.order)

    monkeypatch.setattr("gpu_runtime.scheduler.backlog.Backlog.oldest", latest)
    with broken("I11 order within a tenant"):
        ride()


def test_i11_riders_by_the_counters_of_long_ago(monkeypatch):
    put = TenantHeap.put
    monkeypatch.setattr(TenantHeap, "put", lambda self, tag: tag.tenant_id in self._tags or put(self, tag))
    monkeypatch.setattr(BatchFormer, "_leader", least_served)
    with broken("I11 least served rides first|I11 window"):
        ride()


def test_i11_room_left_though_someone_could_ride(monkeypatch):
    monkeypatch.setattr(BatchFormer, "_add_riders", lambda self, picks, edge_us: None)
    with broken("I11 room used"):
        ride()


def test_a_batch_beyond_its_limit():
    def doubled(**knobs):
        return BatchFormer(**knobs | {"batch_limit_tokens": 2 * knobs["batch_limit_tokens"]})

    with broken("batch limit"):
        World((Crowd(tenant_id="a", outstanding=80),), make_former=doubled).run(5_000_000)


def test_t1_charges_that_go_nowhere(monkeypatch):
    monkeypatch.setattr(FairShare, "charge", lambda self, tenant_id, charge_us: None)
    crowd = (Crowd(tenant_id="a", outstanding=80), Crowd(tenant_id="b", outstanding=80, weight=9))
    with broken("T1 bounded lag"):
        World(crowd).run(20_000_000)


def test_t3_a_former_more_patient_than_it_may_be():
    def patient(**knobs):
        return BatchFormer(**knobs | {"wait_us": 2 * knobs["wait_us"]})

    with broken("T3 idle"):
        World((Crowd(tenant_id="a", outstanding=1, think_us=50_000),), make_former=patient).run(5_000_000)


def least_served(former):
    tags = [former.fair.tag(request.tenant_id) for request in former.backlog]
    return min(tags).tenant_id if tags else None


def most_served(former):
    tags = [former.fair.tag(request.tenant_id) for request in former.backlog]
    return max(tags).tenant_id if tags else None


# --- rows -----------------------------------------------------------------------------------------------------------


def leased_row(partition_id: str, *, step: int, epoch: int) -> TrainingJob:
    lease = LeaseBook(ttl_us=10)
    for _ in range(epoch - 1):
        lease.grant(f"earlier-{_}", now_us=0)
    return TrainingJob(
        partition_id=partition_id,
        job_id="a1",
        tenant_id="a",
        purpose=Purpose.TRAIN,
        group_key="base",
        priority=5,
        step=step,
        samples=1,
        tokens=1,
        state=TrainingJobState.LEASED,
        created_seq=step + 1,
        created_us=0,
        ready_seq=step + 10,
        ready_us=0,
        bytes=1,
        lease=lease.grant(partition_id, now_us=0),
        attempts=1,
    )
