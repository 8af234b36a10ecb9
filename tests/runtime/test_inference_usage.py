"""What predictions cost: exact to the microsecond, billed to who asked, never far ahead of the journal."""

import asyncio

import pytest

from gpu_runtime.inference.errors import InvalidPredict, ServiceStopped
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.messages import PredictReply
from gpu_runtime.inference.policy_store import PolicyStore
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.inference.settings import InferenceSettings
from gpu_runtime.inference.step import PredictMember, PredictStep
from gpu_runtime.inference.usage import PredictLedger, PredictRecord
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.records import Write
from gpu_runtime.training.clock import DeviceClock
from tests.support.inference import (
    FakeBase,
    Records,
    ask_oft,
    make_service,
    make_slot,
    publish,
    replies,
    running,
)

TENANTS = ("alice", "bob", "carol")


@pytest.fixture
def base() -> FakeBase:
    return FakeBase()


@pytest.fixture
def oft(base: FakeBase) -> ServedPolicy:
    return ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)


@pytest.fixture
def records() -> Records:
    return Records()


async def test_the_records_add_up_to_the_measured_time_and_to_every_reply(base, oft, records):
    service = make_service(records, batch_tokens=60)
    for tenant in TENANTS:
        publish(service, tenant, oft)
    async with running(service):
        group = [ask_oft(tenant, seed=seed, count=1 + seed % 2) for seed in range(20) for tenant in TENANTS]
        group.append(ask_oft("carol", seed=99, words="explode"))
        answers = await replies(service, group)
    good = [(request, reply) for request, reply in zip(group, answers, strict=True) if isinstance(reply, PredictReply)]
    for record in records.written:
        assert sum(usage.compute_us for usage in record.usages) + record.overhead_us == record.busy_us
    for tenant in TENANTS:
        own = [usage for record in records.written for usage in record.usages if usage.payer.tenant_id == tenant]
        billed = [usage for usage in own if usage.billable]
        assert sum(usage.chunks for usage in billed) == sum(
            len(request.features) for request, _ in good if request.tenant_id == tenant
        )
        assert sum(usage.compute_us for usage in billed) == sum(
            reply.share_us for request, reply in good if request.tenant_id == tenant
        )
    assert records.total("requests") == len(group)


async def test_no_step_runs_while_the_journal_is_far_behind(base, oft, records):
    service = make_service(records, batch_tokens=1, unwritten_steps_max=3, write_every_us=1)
    publish(service, "alice", oft)
    records.gate.clear()
    async with running(service):
        asked = [asyncio.create_task(service.predict(ask_oft(seed=seed))) for seed in range(12)]
        await asyncio.sleep(0.3)
        done = sum(task.done() for task in asked)
        assert 3 <= done <= 5
        records.gate.set()
        await asyncio.gather(*asked)
    assert records.total("requests") == 12


async def test_a_writer_that_gave_up_ends_the_service_loudly(oft):
    async def refuse(record: PredictRecord) -> None:
        raise OSError("the disk is gone")

    service = InferenceService(
        policies=PolicyStore(),
        step=PredictStep(DeviceClock("cpu"), FeatureHandles(0)),
        write=refuse,
        settings=InferenceSettings(write_every_us=1),
    )
    publish(service, "alice", oft)
    task = asyncio.create_task(service.run())
    await service.predict(ask_oft())
    with pytest.raises(OSError, match="disk is gone"):
        await asyncio.wait_for(task, timeout=5)
    with pytest.raises(ServiceStopped):
        await service.predict(ask_oft())


async def test_a_record_becomes_one_span_and_one_usage_event_per_payer_in_the_journal(base, oft, records, tmp_path):
    service = make_service(records, batch_tokens=10_000, write_every_us=10**9)
    for tenant in TENANTS:
        publish(service, tenant, oft)
    async with running(service):
        good = [ask_oft(tenant, seed=seed) for tenant in TENANTS for seed in range(3)]
        await replies(service, [*good, ask_oft("alice", seed=9, words="explode")])
    (record,) = records.written
    journal = Journal(tmp_path / "journal.sqlite")
    journal.append(Write(entries=record.entries(now_us=5)))
    journal.append(Write(entries=record.entries(now_us=6)))
    events = journal.read(after=0, limit=100)
    span, *usages = [event.body for event in events if event.body.type in ("span", "usage")][:5]
    assert span.busy_us == sum(span.shares.values()) + span.overhead_us
    assert sorted((event.tenant_id, event.job_id) for event in events if event.body.type == "usage") == [
        ("alice", "job-alice"),
        ("alice", "job-alice"),
        ("bob", "job-bob"),
        ("carol", "job-carol"),
    ], "written twice, counted once"
    lines = {(usage.event_id.split("/", 1)[1], line.meter): line.quantity for usage in usages for line in usage.lines}
    assert lines["job-bob/1/served", "predict.chunks"] == 3
    assert lines["job-alice/1/predict_failed", "predict.compute_us"] > 0
    assert ("job-alice/1/predict_failed", "predict.chunks") not in lines
    assert sum(quantity for (_, meter), quantity in lines.items() if meter == "predict.compute_us") == sum(
        span.shares.values()
    )
    journal.close()


async def test_what_the_platform_lost_is_measured_again_and_not_billed_again(base, oft, records):
    service = make_service(records, batch_tokens=10_000, write_every_us=10**9)
    publish(service, "alice", oft)
    async with running(service):
        asked = [ask_oft(seed=seed, unbilled="redone_after_restart" if seed < 2 else None) for seed in range(5)]
        answers = await replies(service, asked)
    (record,) = records.written
    found = {usage.reason: (usage.chunks, usage.billable, usage.compute_us) for usage in record.usages}
    shares = [reply.share_us for reply in answers]
    assert found == {
        "redone_after_restart": (2, False, sum(shares[:2])),
        None: (3, True, sum(shares[2:])),
    }
    bodies = [entry.body for entry in record.entries(now_us=5)][1:]
    assert {(body.billable, body.reason, body.lines[0].quantity) for body in bodies} == {
        (False, "redone_after_restart", 2),
        (True, None, 3),
    }
    assert len({body.event_id for body in bodies}) == 2


def test_a_reason_for_not_billing_is_a_word():
    with pytest.raises(InvalidPredict, match="unbilled: '', allowed: a reason, or none"):
        ask_oft(unbilled="")


class SteppingClock:
    """Every look at it costs a prime number of nanoseconds, so that nothing divides evenly."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        self.ns += 1_000_003
        return self.ns


def test_a_step_is_split_by_tokens_and_own_time_and_not_a_microsecond_is_lost(oft):
    members = [
        PredictMember(request_id=str(at), request=request, policy=oft, tokens=oft.tokens(request))
        for at, request in enumerate([ask_oft("alice"), ask_oft("bob", words="push the cube to the goal", count=2)])
    ]
    ledger = PredictLedger()
    outcome = PredictStep(SteppingClock(), FeatureHandles(0)).run(members)
    shares = ledger.add(outcome).shares
    measured = outcome.measured
    assert (measured.busy_us, measured.shared_us) == (7_000, 1_000)
    assert shares == {"0": 167 + 1_000, "1": 833 + 1_000}  # 14 and 2 x 35 tokens
    record = ledger.drain()
    assert (record.overhead_us, record.samples, record.tokens) == (4_000, 3, 14 + 70)
    assert ledger.drain() is None
