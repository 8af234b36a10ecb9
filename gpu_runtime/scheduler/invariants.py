"""What must always hold, as checkers: used by the state machines, the simulator, and in production when idle.

Each raises InvariantBroken naming the invariant. ``audit`` is what a running service checks by itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpu_runtime.protocol.ids import JobId, TenantId
from gpu_runtime.scheduler.accounting import Attribution, MeasuredStep
from gpu_runtime.scheduler.backlog import K, Request
from gpu_runtime.scheduler.batch_former import MISFITS_MAX, Batch, BatchFormer
from gpu_runtime.scheduler.fair_share import Tag
from gpu_runtime.scheduler.leases import LeaseBook
from gpu_runtime.scheduler.states import IN_PRODUCTION, TrainingJobState
from gpu_runtime.scheduler.training_job import Group, TrainingJob
from gpu_runtime.scheduler.training_queue import TrainingQueue


class InvariantBroken(AssertionError):
    """A promise of the scheduler does not hold: a bug, never a user's mistake."""


def _hold(condition: bool, invariant: str, detail: object) -> None:
    if not condition:
        raise InvariantBroken(f"{invariant}: {detail}")


# --- accounting -----------------------------------------------------------------------------------------------------


def check_accounting(step: MeasuredStep[K], attribution: Attribution[K]) -> None:
    """I3: tenant shares + overhead = measured busy time, to the microsecond, and nobody pays a negative share."""
    parts_us = sum(attribution.shares.values()) + attribution.overhead_us
    _hold(parts_us == step.busy_us, "I3 exact accounting", f"parts {parts_us} us, measured {step.busy_us} us")
    least_us = min([attribution.overhead_us, *attribution.shares.values()])
    _hold(least_us >= 0, "I3 exact accounting", f"a part of {least_us} us")


# --- consumption, over a trace --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """A partition had its effect, at this policy version of its job."""

    job: TrainingJob
    policy_version: int  # before the effect


def check_consumed_once(consumptions: Sequence[Consumption], jobs: Iterable[TrainingJob]) -> None:
    """I6: each partition is consumed at most once, and each that ended without it says why."""
    times = Counter(consumption.job.partition_id for consumption in consumptions)
    for partition_id, count in times.items():
        _hold(count == 1, "I6 consumed once", f"partition {partition_id} was consumed {count} times")
    for job in jobs:
        completed = job.state is TrainingJobState.COMPLETED
        _hold(not completed or times[job.partition_id] == 1, "I6 consumed once", f"{job.partition_id} never was")
        _hold(not job.ended or completed or bool(job.reason), "I6 reason given", f"{job.partition_id} has none")


def check_freshness(consumptions: Iterable[Consumption]) -> None:
    """I7: an update at version v uses behaviour version >= v - max_staleness."""
    for consumption in consumptions:
        freshness, version = consumption.job.freshness, consumption.policy_version
        fresh = freshness is None or freshness.slack(version) >= 0
        _hold(fresh, "I7 staleness", f"{consumption.job.partition_id} of {freshness} used at version {version}")


def check_epochs(epochs: Iterable[int]) -> None:
    """I8: every lease has an epoch above all earlier ones, over restarts too."""
    last = 0
    for epoch in epochs:
        _hold(epoch > last, "I8 epochs rise", f"{epoch} was granted after {last}")
        last = epoch


# --- one decision ---------------------------------------------------------------------------------------------------


def check_group(before: Iterable[TrainingJob], group: Group) -> None:
    """One compatibility class, at most one training job per job, and each the first of its job's live ones."""
    per_job = Counter(leased.job.job_id for leased in group.leases)
    _hold(max(per_job.values()) == 1, "one per job", per_job.most_common(1))
    keys = {leased.job.group_key for leased in group.leases}
    _hold(keys == {group.group_key}, "one class per group", keys)
    first, leased_jobs = _first_live(before)
    for leased in group.leases:
        job = leased.job
        _hold(first[job.job_id].partition_id == job.partition_id, "step order", f"{job} before {first[job.job_id]}")
        _hold(job.job_id not in leased_jobs, "step order", f"{job} while an earlier step is leased")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The backlog as a decision saw it."""

    tags: Mapping[TenantId, Tag]
    first: Mapping[TenantId, object]  # each tenant's next request id

    @classmethod
    def of(cls, former: BatchFormer[K]) -> "Waiting":
        nexts: dict[TenantId, Request[K]] = {}
        for request in former.backlog:
            best = nexts.get(request.tenant_id)
            if best is None or (request.order, request.request_id) < (best.order, best.request_id):
                nexts[request.tenant_id] = request
        return cls(
            tags={tenant_id: former.fair.tag(tenant_id) for tenant_id in nexts},
            first={tenant_id: request.request_id for tenant_id, request in nexts.items()},
        )


def check_decision(
    before: Waiting, batch: Batch[K], former: BatchFormer[K], *, window_us: int, limit_tokens: int
) -> None:
    """I11: the least served leads with its first request, riders are in the window, no room is wasted."""
    lead, riders = batch.picks[0], batch.picks[1:]
    least = min(before.tags.values())
    _hold(lead.request.tenant_id == least.tenant_id, "I11 least served leads", f"{lead} led instead of {least}")
    _hold(lead.request.request_id == before.first[least.tenant_id], "I11 order within a tenant", lead)
    edge_us = least.counter_us + window_us
    for earlier, rider in zip(batch.picks, riders, strict=False):
        _hold(rider.request.group_key == batch.group_key, "one class per group", rider)
        _hold(rider.counter_us <= edge_us, "I11 window", f"{rider} beyond {edge_us} us")
        _hold(earlier.counter_us <= rider.counter_us, "I11 least served rides first", rider)
    left_tokens = limit_tokens - sum(pick.request.tokens for pick in batch.picks)
    _hold(left_tokens >= 0 or not riders, "batch limit", f"{-left_tokens} tokens too many")
    _check_room(batch, former, edge_us, left_tokens)


def _check_room(batch: Batch[K], former: BatchFormer[K], edge_us: int, left_tokens: int) -> None:
    tenants = {request.tenant_id for request in former.backlog if request.group_key == batch.group_key}
    inside = [tenant_id for tenant_id in tenants if former.fair.tag(tenant_id).counter_us <= edge_us]
    firsts = [former.backlog.first(tenant_id, batch.group_key) for tenant_id in inside]
    fitting = [request for request in firsts if request is not None and request.tokens <= left_tokens]
    _hold(not fitting or len(inside) > MISFITS_MAX, "I11 room used", fitting)


def check_spread(former: BatchFormer[K], *, window_us: int, charge_us_max: int) -> None:
    """I11: with nothing in flight, max S - min S over backlogged tenants <= D + U."""
    counters = [former.fair.counter_us(tenant_id) for tenant_id in {request.tenant_id for request in former.backlog}]
    spread_us = max(counters) - min(counters) if counters else 0
    _hold(spread_us <= window_us + charge_us_max, "I11 spread", f"{spread_us} > {window_us} + {charge_us_max} us")


def check_lag(lag_us: Fraction, *, window_us: int, charge_us_max: int) -> None:
    """T1: for tenants backlogged throughout an interval, |W_f/w_f - W_g/w_g| <= 2(D + U) over it."""
    bound_us = 2 * (window_us + charge_us_max)
    _hold(lag_us <= bound_us, "T1 bounded lag", f"{float(lag_us)} > {bound_us} us")


def check_idle(idle_us: int, *, wait_us: int) -> None:
    """T3, work conserving: the device idles at most T while something waits."""
    _hold(idle_us <= wait_us, "T3 idle", f"{idle_us} > {wait_us} us with a backlog")


def check_entry(former: BatchFormer[K], tenant_id: TenantId) -> None:
    """I11: who comes back from idle starts at V or above, so credit is not banked."""
    counter_us, virtual_us = former.fair.tag(tenant_id).counter_us, former.fair.virtual_us
    _hold(counter_us >= virtual_us, "I11 lift", f"{tenant_id} entered at {counter_us}, V = {virtual_us} us")


def check_virtual_time(before_us: int, after_us: int) -> None:
    """L1: V never falls."""
    _hold(before_us <= after_us, "L1 virtual time", f"fell from {before_us} to {after_us} us")


# --- the state of a queue -------------------------------------------------------------------------------------------


def check_rows(jobs: Iterable[TrainingJob]) -> None:
    """I1: every row is in exactly one state, and has what that state says."""
    for job in jobs:
        leased, produced = job.state is TrainingJobState.LEASED, job.ready_seq is not None
        _hold((job.lease is not None) == leased, "I1 lease iff leased", job)
        _hold(produced or job.state not in (TrainingJobState.READY, TrainingJobState.LEASED), "I1 ready before", job)
        _hold(not produced or job.state not in IN_PRODUCTION, "I1 produced once", job)
        _hold(job.bytes >= 0 and (job.ended or not produced or job.bytes > 0), "I1 bytes until ended", job)


def check_leases(jobs: Iterable[TrainingJob], leases: LeaseBook, *, swept_us: int) -> None:
    """I8: one live lease per leased row and at most one per job; none that an earlier sweep should have taken."""
    leased = [job for job in jobs if job.state is TrainingJobState.LEASED]
    for job in leased:
        _hold(leases.get(job.partition_id) == job.lease, "I8 one live epoch", job)
        _hold(job.lease is not None and job.lease.expires_us > swept_us, "I8 gone after TTL", job)
    _hold(len(leases) == len(leased), "I8 no lease without a row", f"{len(leases)} leases, {len(leased)} rows")
    per_job = Counter(job.job_id for job in leased)
    _hold(all(count == 1 for count in per_job.values()), "I8 one lease per job", per_job.most_common(1))


def check_bytes(jobs: Iterable[TrainingJob], *, live_bytes: int, store_bytes: int) -> None:
    """I9: sum of live partitions = the queue's counter = bytes in the store."""
    total = sum(job.bytes for job in jobs)
    _hold(total == live_bytes == store_bytes, "I9 bytes", f"rows {total}, counter {live_bytes}, store {store_bytes}")


def check_offers(queue: TrainingQueue) -> None:
    """I11, work conserving: exactly the jobs that could run are offered, each with its first partition.

    And what counts as in flight, at its estimate, is exactly what is leased.
    """
    leased = {job.partition_id for job in queue.jobs() if job.state is TrainingJobState.LEASED}
    in_flight = queue.former.in_flight
    _hold(in_flight == leased, "I11 in flight", f"{sorted(in_flight)} counted, {sorted(leased)} leased")
    offered = {request.request_id for request in queue.former.backlog}
    first, leased_jobs = _first_live(queue.jobs())
    able = {
        job.partition_id
        for job_id, job in first.items()
        if job.state is TrainingJobState.READY and job_id not in leased_jobs
    }
    _hold(offered == able, "I11 work conserving", f"offered {sorted(offered)}, able {sorted(able)}")


def _first_live(jobs: Iterable[TrainingJob]) -> tuple[dict[JobId, TrainingJob], set[JobId]]:
    """The first live partition of each job, and the jobs of which one is leased."""
    live = sorted((job for job in jobs if not job.ended), key=lambda job: job.place, reverse=True)
    first = {job.job_id: job for job in live}
    return first, {job.job_id for job in live if job.state is TrainingJobState.LEASED}


def audit(queue: TrainingQueue, *, store_bytes: int, swept_us: int = 0) -> None:
    """Everything that can be told from the present state. O(retained partitions): for idle moments."""
    jobs = tuple(queue.jobs())
    check_rows(jobs)
    check_leases(jobs, queue.leases, swept_us=swept_us)
    check_bytes(jobs, live_bytes=queue.live_bytes(), store_bytes=store_bytes)
    check_offers(queue)
