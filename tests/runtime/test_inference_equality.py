"""The answer to a request is the same alone and in any group, on the real base with real heads."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.messages import Mode, PredictRequest
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.step import PredictMember, PredictStep
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.training.clock import DeviceClock
from tests.support.inference import (
    Records,
    ask,
    make_actor_critic,
    make_service,
    make_slot,
    observation,
    publish,
    running,
)

TENANTS = ("alice", "bob", "carol")
EXPLORATIONS = {"alice": "gaussian", "bob": "flow_sde", "carol": "gaussian"}
HEADS = {"alice": ("oft", {"standardize": False}), "bob": ("gr00t", {"tap": "merged"}), "carol": ("mlp", {})}


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    torch.set_num_threads(1)
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


@pytest.fixture(scope="module")
def policies(tiny: Backbone) -> dict[str, ServedPolicy]:
    """One policy per kind of head, each with an exploration and a value head, on the real base."""
    slots = {tenant: make_slot(head, tiny, **options) for tenant, (head, options) in HEADS.items()}
    return {
        tenant: ServedPolicy.freeze(make_actor_critic(slot, EXPLORATIONS[tenant]), tiny)
        for tenant, slot in slots.items()
    }


def request_of(tenant: str, seed: int, *, words: str, count: int, mode: Mode, keep: bool) -> PredictRequest:
    queries = 4 if HEADS[tenant][0] == "oft" else 0
    return ask(tenant, seed=seed, words=words, count=count, queries=queries, mode=mode, keep_features=keep)


requests = st.builds(
    request_of,
    st.sampled_from(TENANTS),
    st.integers(0, 10_000),
    words=st.sampled_from(["push", "push the cube to the red goal", ""]),
    count=st.integers(1, 2),
    mode=st.sampled_from(list(Mode)),
    keep=st.booleans(),
)


def step_of(policies: dict[str, ServedPolicy], group: list[PredictRequest]) -> list[PredictMember]:
    """What one device step makes of these requests."""
    members = [
        PredictMember(
            request_id=str(at),
            request=request,
            policy=policies[request.tenant_id],
            tokens=policies[request.tenant_id].tokens(request),
        )
        for at, request in enumerate(group)
    ]
    PredictStep(DeviceClock("cpu"), FeatureHandles(10**7)).run(members)
    return members


def assert_same_answer(grouped: PredictMember, alone: PredictMember) -> None:
    assert (grouped.failure, alone.failure) == (None, None)
    one, other = grouped.decision, alone.decision
    assert np.array_equal(one.actions_BHA, other.actions_BHA)
    assert (one.value is None) == (grouped.request.mode is Mode.EVAL)
    assert one.value is None or np.array_equal(one.value, other.value)
    assert grouped.handles == alone.handles
    assert (one.trace is None) == (grouped.request.mode is not Mode.SAMPLE)
    assert one.trace is None or all(torch.equal(one.trace[name], other.trace[name]) for name in one.trace)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(group=st.lists(requests, min_size=2, max_size=5))
def test_an_answer_is_the_same_bit_for_bit_in_any_group(policies, group):
    for grouped, request in zip(step_of(policies, group), group, strict=True):
        assert_same_answer(grouped, step_of(policies, [request])[0])


def test_the_answer_depends_on_observation_state_seed_and_weights(policies):
    """Otherwise the test above would prove nothing."""
    base = request_of("bob", 1, words="push", count=1, mode=Mode.EVAL, keep=False)
    variants = [
        base,
        replace(base, features=request_of("bob", 2, words="push", count=1, mode=Mode.EVAL, keep=False).features),
        replace(base, state_BS=base.state_BS + 1),
        replace(base, seeds=(77,)),
        replace(base, mode=Mode.SAMPLE),
    ]
    chunks = [member.decision.actions_BHA for member in step_of(policies, variants)]
    assert all(not np.array_equal(one, other) for one, other in itertools.combinations(chunks, 2))


def test_evaluation_is_what_the_exported_policy_does(policies, tiny):
    slot = make_slot("gr00t", tiny, tap="merged")
    request = request_of("bob", 5, words="push", count=1, mode=Mode.EVAL, keep=False)
    member = step_of({"bob": ServedPolicy.freeze(slot.policy, tiny)}, [request])[0]
    features = tiny.encode(request.features, [slot.taps])
    assert np.array_equal(member.decision.actions_BHA, slot.act(features, request.state_BS, seed=request.seeds[0]))


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.mark.parametrize("tenant", TENANTS)
def test_the_log_probability_recomputed_from_handle_and_trace_is_the_stored_one(tiny, tenant):
    """The trainer's side: features by handle, no second backbone pass, weights unchanged since the rollout."""
    head, options = HEADS[tenant]
    models = make_actor_critic(make_slot(head, tiny, **options), EXPLORATIONS[tenant])
    policy, handles = ServedPolicy.freeze(models, tiny), FeatureHandles(10**7)
    request = request_of(tenant, 3, words="push", count=2, mode=Mode.SAMPLE, keep=True)
    member = PredictMember(request_id="1", request=request, policy=policy, tokens=policy.tokens(request))
    PredictStep(DeviceClock("cpu"), handles).run([member])
    features = [rows for name in member.handles if (rows := handles.peek(tenant, name)) is not None]
    assert len(features) == 2
    trace = member.decision.trace
    again = models.score(features, request.state_BS, trace).log_prob_BCA
    assert torch.allclose(again, trace["log_prob"], atol=1e-5)
    assert np.allclose(models.value(features, request.state_BS).detach().numpy(), member.decision.value, atol=1e-6)
    with torch.no_grad():
        for parameter in models.actor.parameters():
            parameter.mul_(1.3)
    moved = models.score(features, request.state_BS, trace).log_prob_BCA
    assert not torch.allclose(moved, trace["log_prob"], atol=1e-3)


def test_the_critic_alone_answers_without_actions(policies):
    request = request_of("bob", 3, words="push", count=2, mode=Mode.SAMPLE, keep=False)
    both = step_of(policies, [request, replace(request, mode=Mode.VALUE)])
    assert np.array_equal(both[0].decision.value, both[1].decision.value)
    assert both[1].decision.actions_BHA.shape == (2, 0, 3)


async def test_requests_of_three_heads_share_one_forward_and_each_is_answered(policies, records):
    service = make_service(records, batch_tokens=10_000, window_us=10**9)
    for tenant in TENANTS:
        publish(service, tenant, policies[tenant])
    group = [
        request_of(tenant, seed, words="push", count=2, mode=Mode.SAMPLE, keep=True)
        for seed, tenant in enumerate(TENANTS)
    ]
    asked = asyncio.gather(*(service.predict(request) for request in group))
    await asyncio.sleep(0)  # all three wait before the device starts
    async with running(service):
        answers = await asked
    for reply, member in zip(answers, step_of(policies, group), strict=True):
        assert np.array_equal(reply.actions_BHA, member.decision.actions_BHA)
        assert (reply.group_size, reply.policy_version, len(reply.handles)) == (3, 1, 2)
        assert reply.actions_BHA.shape == (2, 4, 3)
        assert 0 < reply.share_us <= reply.compute_us
    assert sum(reply.share_us for reply in answers) <= answers[0].compute_us


def test_a_trainers_forward_in_another_thread_changes_no_answer(policies, tiny):
    """Training and inference share the resident base, each from its own compute thread."""
    group = [request_of(tenant, 11, words="push", count=1, mode=Mode.EVAL, keep=False) for tenant in TENANTS]
    alone = step_of(policies, group)
    frames = [observation(seed, words="something longer than that", side=64) for seed in range(6)]
    expected = tiny.encode(frames, [{"layer:-1"}] * 6)
    with ThreadPoolExecutor(1, initializer=lambda: torch.set_num_threads(1)) as trainer:
        forwards = [trainer.submit(tiny.encode, frames, [{"layer:-1"}] * 6) for _ in range(8)]
        answers = [step_of(policies, group) for _ in range(8)]
        for forward in forwards:
            assert all(
                torch.equal(a["layer:-1"], b["layer:-1"]) for a, b in zip(forward.result(), expected, strict=True)
            )
    for members in answers:
        for beside, before in zip(members, alone, strict=True):
            assert_same_answer(beside, before)
