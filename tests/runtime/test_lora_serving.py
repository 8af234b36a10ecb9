"""Policies with an adapter are served beside plain ones, each as alone, and never on another adapter's features."""

import copy

import numpy as np
import pytest
import torch

from gpu_runtime.batching.handles import handle_of
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.inference.messages import PredictRequest
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.step import PredictMember, PredictStep
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.checkpoint import CheckpointError
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.lora.encode import encode_with
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.rl_checkpoint import load_rl_slot, save_rl_slot
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.exploration import ActorCriticSpec
from gpu_runtime.protocol.specs import OptimizerSpec, SftJobSpec
from gpu_runtime.training.clock import DeviceClock
from tests.support.inference import observation
from tests.support.policies import Problem


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    torch.set_num_threads(1)
    return load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))


def policy(base: Backbone, seed: int, rank: int | None) -> Policy:
    """A policy whose head and adapter are both far from their start."""
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": "served",
            "base_model": "tiny-qwen3-vl",
            "head": {"type": "oft", "horizon": 4, "blocks": 1, "expansion": 1, "standardize": False},
            "dataset": {"id": "synthetic", "image_size": 32},
            "training": {"steps": 10, "seed": seed},
            "lora": None if rank is None else {"rank": rank, "alpha": rank},
        }
    )
    problem = Problem()
    slot = Slot.create(
        spec=spec, schema=problem.schema, statistics=problem.statistics, tap_width=base.tap_width, base=base
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in slot.named_parameters().values():
            parameter += torch.randn(parameter.shape, generator=generator) * 0.1
    return slot.policy


def member(served: ServedPolicy, tenant: str, *, keep: bool = False) -> PredictMember:
    state = None if not served.policy.state_dim else np.zeros((1, served.policy.state_dim), np.float32)
    request = PredictRequest(
        tenant_id=tenant,
        job_id=tenant,
        attempt=1,
        session_id=tenant,
        slot_id=tenant,
        features=(observation(3, side=32, queries=served.query_tokens),),
        state_BS=state,
        seeds=(5,),
        keep_features=keep,
    )
    return PredictMember(request_id=tenant, request=request, policy=served, tokens=served.tokens(request))


def answers(members: list[PredictMember]) -> list[np.ndarray]:
    PredictStep(DeviceClock("cpu"), FeatureHandles(10**7)).run(members)
    assert [one.failure for one in members] == [None] * len(members)
    return [one.decision.actions_BHA for one in members]


def test_adapted_and_plain_requests_share_a_step_and_each_answers_as_alone(tiny: Backbone) -> None:
    served = [
        ServedPolicy.freeze(policy(tiny, seed, rank), tiny) for seed, rank in [(1, 4), (2, None), (3, 4), (4, 8)]
    ]
    together = answers([member(one, f"t{at}") for at, one in enumerate(served)])
    for at, one in enumerate(served):
        assert np.array_equal(together[at], answers([member(one, f"t{at}")])[0])


def test_a_published_version_keeps_the_adapter_it_was_published_with(tiny: Backbone) -> None:
    live = policy(tiny, 1, 4)
    pinned = ServedPolicy.freeze(live, tiny)
    before = answers([member(pinned, "t")])[0]
    with torch.no_grad():
        live.lora.up[0].add_(1.0)
    newer = ServedPolicy.freeze(live, tiny)
    assert np.array_equal(answers([member(pinned, "t")])[0], before)
    assert not np.array_equal(answers([member(newer, "t")])[0], before)
    assert newer.prefix_hash != pinned.prefix_hash


def rl_slot(base: Backbone, start: Policy) -> RlSlot:
    spec = ActorCriticSpec.model_validate(
        {
            "exploration": {"type": "gaussian"},
            "executed_steps": 3,
            "value": {"hidden": (16, 8), "standardize": False},
        }
    )
    return RlSlot(start, spec, optimizer=OptimizerSpec(), total_steps=4, seed=1)


def test_reinforcement_learning_leaves_the_adapter_frozen_and_names_its_features_by_it(tiny: Backbone) -> None:
    one, other = rl_slot(tiny, policy(tiny, 1, 4)), rl_slot(tiny, policy(tiny, 1, 4))
    with torch.no_grad():
        other.policy.lora.up[0][0, 0] += 1.0
    served = ServedPolicy.freeze(one.models, tiny)
    asked = member(served, "t", keep=True)
    kept = FeatureHandles(10**7)
    PredictStep(DeviceClock("cpu"), kept).run([asked])
    assert asked.failure is None
    feature = asked.request.features[0]

    def found(slot: RlSlot) -> Features | None:
        return kept.peek("t", handle_of("t", slot.policy.signature(tiny).hash, feature))

    expected = encode_with(tiny, [feature], [one.taps], [one.lora])[0]
    rows = found(one)
    assert rows is not None
    assert all(torch.equal(rows[tap], value) for tap, value in expected.items())
    assert found(other) is None  # else it would learn on features that its adapter never made
    assert not any(name.startswith("lora") for name in one.named_parameters())
    assert not any(parameter.requires_grad for parameter in one.lora.parameters())


def test_without_the_adapter_in_the_prefix_another_ones_features_would_be_found(tiny: Backbone) -> None:
    """The planted fault that the test above must catch."""
    one, other = policy(tiny, 1, 4), policy(tiny, 2, 4)
    feature = observation(3, side=32, queries=one.query_tokens)

    def name(of: Policy) -> str:
        blind = tiny.signature(views=of.views, query_tokens=of.query_tokens, taps=of.taps)
        return handle_of("t", blind.hash, feature)

    assert name(one) == name(other)
    rows = encode_with(tiny, [feature] * 2, [one.taps] * 2, [one.lora, other.lora])
    assert not all(torch.equal(rows[0][tap], rows[1][tap]) for tap in rows[0])


def test_a_checkpoint_of_reinforcement_learning_brings_its_adapter_along(tiny: Backbone, tmp_path) -> None:
    slot = rl_slot(tiny, policy(tiny, 1, 4))
    expected = copy.deepcopy(slot.lora.state_dict())
    save_rl_slot(slot, tmp_path / "c")
    loaded = load_rl_slot(tmp_path / "c", tap_width=tiny.tap_width, base=tiny)
    assert all(torch.equal(loaded.lora.state_dict()[name], value) for name, value in expected.items())
    assert not any(parameter.requires_grad for parameter in loaded.lora.parameters())
    with pytest.raises(CheckpointError, match="lora"):
        load_rl_slot(tmp_path / "c", tap_width=tiny.tap_width)
