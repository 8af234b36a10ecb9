"""The inference service: equal answers in any company, faults that stay alone, versions that stay while needed."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_runtime.inference.errors import (
    DeadlineMissed,
    InvalidPredict,
    NonFiniteOutput,
    PredictFailed,
    SamplingUnsupported,
    ServiceStopped,
    UnknownSlot,
    UnknownVersion,
)
from gpu_runtime.inference.messages import Mode, PredictReply
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.scheduler.errors import InferenceQueueFull
from gpu_runtime.scheduler.inference_queue import WINDOW_BATCHES, InferenceLimits
from tests.support.inference import (
    FakeBase,
    Records,
    ask,
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


async def test_a_request_that_breaks_the_forward_fails_alone_and_its_mates_answers_are_what_they_were(
    base, oft, records
):
    service = make_service(records, batch_tokens=10_000)
    publish(service, "alice", oft)
    publish(service, "mallory", oft)
    good = [ask_oft(seed=seed) for seed in range(3)]
    bad = ask_oft("mallory", words="explode")
    asked = asyncio.gather(replies(service, good), replies(service, [bad]))
    await asyncio.sleep(0.01)
    async with running(service):
        answers, (failure,) = await asked
        alone = [(await replies(service, [request]))[0] for request in good]
    assert isinstance(failure, PredictFailed)
    assert (failure.reason, "cannot read" in str(failure)) == ("step_failed", True)
    assert base.groups[:5] == [4, 1, 1, 1, 1], "the group once, then each alone"
    assert all(np.array_equal(one.actions_BHA, other.actions_BHA) for one, other in zip(answers, alone, strict=True))


class Faulty(ServedPolicy):
    """A head that cannot act."""

    def act(self, *arguments, **options):
        raise ZeroDivisionError("no action")


async def test_a_head_that_fails_or_answers_nan_fails_its_own_request_only(base, oft, records):
    nan = make_slot("oft", base, standardize=False)
    with torch.no_grad():
        nan.policy.head.out.bias.fill_(float("nan"))
    service = make_service(records, batch_tokens=10_000)
    publish(service, "alice", oft)
    publish(service, "bob", ServedPolicy.freeze(nan.policy, base))
    publish(service, "carol", Faulty(oft.policy, base))
    asked = asyncio.gather(replies(service, [ask_oft(tenant) for tenant in TENANTS]))
    await asyncio.sleep(0.01)
    async with running(service):
        ((fine, infinite, broken),) = await asked
    assert np.isfinite(fine.actions_BHA).all()
    assert isinstance(infinite, NonFiniteOutput)
    assert (broken.reason, str(broken)) == ("step_failed", "ZeroDivisionError: no action")
    assert base.groups == [3]
    billed = {
        usage.payer.tenant_id: (usage.billable, usage.chunks) for record in records.written for usage in record.usages
    }
    assert billed == {"alice": (True, 1), "bob": (False, 0), "carol": (False, 0)}


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"slot_id": "leg"}, UnknownSlot, "slot leg does not exist"),
        ({"tenant_id": "bob"}, UnknownSlot, "slot arm does not exist"),
        ({"policy_version": 9}, UnknownVersion, r"policy_version: 9 .* allowed: versions \[1\]"),
        ({"mode": Mode.SAMPLE}, SamplingUnsupported, "evaluated, not sampled"),
        ({"state_BS": np.zeros((1, 3))}, InvalidPredict, r"state: shape \[1, 3\], allowed: \[1, 2\]"),
        ({"state_BS": None}, InvalidPredict, r"state: shape None, allowed: \[1, 2\]"),
        (
            {"features": ask(side=64, queries=4).features},
            InvalidPredict,
            r"sizes \[\(64, 64\)\], allowed: \[\(32, 32\)\]",
        ),
        ({"features": ask(queries=3).features}, InvalidPredict, "query_tokens: 3, allowed: 4"),
        (
            {"features": ask(words="w" * 41, queries=4).features},
            InvalidPredict,
            r"features\[0\]: instruction: 41 bytes",
        ),
    ],
)
async def test_a_request_that_cannot_be_answered_is_refused_before_it_waits(
    base, oft, records, fields, error, message
):
    service = make_service(records)
    publish(service, "alice", oft)
    async with running(service):
        with pytest.raises(error, match=message):
            await service.predict(replace(ask_oft(), **fields))
    assert base.groups == []
    assert service.policies.pinned() == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": ()}, "features: a request needs"),
        ({"seeds": (1, 2)}, "seeds: 2 for 1 observations"),
        ({"seeds": (-1,)}, "seeds: -1"),
        ({"state_BS": np.zeros((2, 2))}, r"state: shape \[2, 2\]"),
        ({"progress_B": np.zeros(3)}, r"progress: shape \[3\]"),
        ({"timeout_us": 0}, "timeout_us: 0"),
    ],
)
def test_a_senseless_request_cannot_be_made(fields, message):
    with pytest.raises(InvalidPredict, match=message):
        replace(ask(), **fields)


async def test_a_bound_refuses_the_request_and_holds_nothing_of_it(oft, records):
    service = make_service(records, limits=InferenceLimits(per_session=1))
    publish(service, "alice", oft)
    first = asyncio.create_task(service.predict(ask_oft()))
    await asyncio.sleep(0)
    with pytest.raises(InferenceQueueFull) as refusal:
        await service.predict(ask_oft())
    assert (refusal.value.reason, service.policies.pinned()) == ("session_requests", 1)
    async with running(service):
        await first


async def test_a_request_whose_time_is_up_is_refused_and_whoever_leaves_frees_its_place(oft, records):
    service = make_service(records)
    publish(service, "alice", oft)
    late = asyncio.create_task(service.predict(ask_oft(seed=1, timeout_us=1)))
    gone = asyncio.create_task(service.predict(ask_oft(seed=2)))
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.sleep(0)
    assert (service.queue.depth(), service.policies.pinned()) == (1, 1)
    async with running(service):
        with pytest.raises(DeadlineMissed, match="waited 1 us"):
            await late
    assert gone.cancelled()


async def test_stopping_answers_what_runs_and_refuses_what_waits(records):
    base = FakeBase(seconds=0.05)
    policy = ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)
    service = make_service(records, batch_tokens=1)
    publish(service, "alice", policy)
    async with running(service):
        asked = [asyncio.create_task(service.predict(ask_oft(seed=seed))) for seed in range(3)]
        await asyncio.sleep(0.02)
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(outcome, PredictReply) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ServiceStopped) for outcome in outcomes) == 2
    with pytest.raises(ServiceStopped):
        await service.predict(ask_oft())


async def test_a_session_gets_its_answers_in_order_and_requests_gather_while_the_device_is_busy(records):
    base = FakeBase(seconds=0.01)
    policy = ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)
    service = make_service(records, batch_tokens=10_000, window_us=10**9)
    publish(service, "alice", policy)
    order: list[int] = []

    async def one(seed: int, session: str) -> None:
        reply = await service.predict(ask_oft(seed=seed, session_id=session))
        order.append(seed)
        sizes.append(reply.group_size)

    sizes: list[int] = []
    async with running(service):
        await asyncio.gather(
            *(one(seed, "same") for seed in range(3)), *(one(seed, f"other {seed}") for seed in range(10, 15))
        )
    assert [seed for seed in order if seed < 10] == [0, 1, 2]
    assert base.groups[0] in (1, 6)
    assert max(base.groups) >= 5, "they gathered"
    assert len(base.groups) <= 4


async def test_a_flooding_tenant_cannot_starve_a_light_one_on_a_real_clock(records):
    base = FakeBase(seconds=0.002)
    policy = ServedPolicy.freeze(make_slot("oft", base, standardize=False).policy, base)
    service = make_service(records, batch_tokens=14 * 8, window_us=10_000)
    for tenant in ("flood", "light"):
        publish(service, tenant, policy)
    waits: dict[str, list[int]] = {"flood": [], "light": []}

    async def session(tenant: str, number: int, turns: int) -> None:
        for _ in range(turns):
            reply = await service.predict(ask_oft(tenant, seed=number, session_id=str(number)))
            waits[tenant].append(reply.queue_us)

    async with running(service):
        flood = [asyncio.create_task(session("flood", number, 40)) for number in range(100)]
        await asyncio.sleep(0.05)
        await session("light", 0, 15)
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
    light, flooding = np.median(waits["light"]), np.median(waits["flood"])
    assert light * 3 < flooding, (light, flooding)


async def test_limit_and_window_follow_the_measurement_of_each_base_unless_they_are_set(oft, records):
    slow = FakeBase(name="slow", seconds=0.05)
    other = ServedPolicy.freeze(make_slot("oft", slow, standardize=False).policy, slow)
    measured, fixed = make_service(records), make_service(records, batch_tokens=77, window_us=5)
    for service in (measured, fixed):
        publish(service, "alice", oft)
        publish(service, "bob", other)
        async with running(service):
            for seed in range(5):
                await replies(service, [ask_oft(seed=seed), ask_oft("bob", seed=seed)])
    costs_us = [measured.measured.knee(policy.group_key).batch_us for policy in (oft, other)]
    assert costs_us[1] > costs_us[0], "each has its own curve"
    assert measured.queue.former.window_us == WINDOW_BATCHES * costs_us[1]
    for policy in (oft, other):
        limit_tokens = measured.measured.knee(policy.group_key).limit_tokens
        assert measured.queue.batch_limit_tokens(policy.group_key) == limit_tokens
        assert fixed.queue.batch_limit_tokens(policy.group_key) == 77
    assert fixed.queue.former.window_us == 5
