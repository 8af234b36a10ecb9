"""A reinforcement-learning slot: own rates, all or nothing, resumable, and its export is imitation's kind of policy.

Shapes: B samples.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.data.statistics import dataset_statistics
from gpu_runtime.models.adapters import load_adapter
from gpu_runtime.models.checkpoint import load_slot, save_slot
from gpu_runtime.models.errors import CheckpointError, HeadConfigurationError, NonFiniteGradient, NonFiniteLoss
from gpu_runtime.models.export import Provenance, export_adapter
from gpu_runtime.models.probe import run_probe
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.rl_checkpoint import load_rl_slot, save_rl_slot
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.exploration import ActorCriticSpec
from gpu_runtime.protocol.specs import OptimizerSpec
from tests.support.demonstrations import make_dataset
from tests.support.exploration import CASES, rl_slot
from tests.support.policies import Problem, make_spec, tap_width

EVERY_CASE = list(CASES)
FILES = {"head", "exploration", "value", "reference", "optimizer", "random", "observed"}


def everything(slot: RlSlot) -> dict[str, Any]:
    """All state that a step may change, copied."""
    return {
        "weights": {name: p.detach().clone() for name, p in slot.named_parameters().items()},
        "moments": copy.deepcopy(slot.optimizer.state_dict()["state"]),
        "random": slot.generator.get_state(),
        "counters": (slot.step, slot.updates, slot.policy_version, tuple(slot.consumed)),
    }


def same(a: Any, b: Any) -> bool:
    """Bit equality of nested state."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def batches(problem: Problem, count: int) -> list:
    return [problem.batch(8) for _ in range(count)]


def step(
    slot: RlSlot, features, batch, name: str, spoil: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> list:
    """One step of two minibatches on a fresh rollout: a surrogate with made-up advantages, and a value loss."""
    _, trace = slot.models.act_with_trace(features, batch.state_BS, seeds=range(len(features)))
    losses = []
    with slot.whole_step([name]):
        for rows in slot.minibatches(len(features), 4):
            chosen = [features[i] for i in rows]
            state = batch.state_BS[rows.numpy()]
            score = slot.models.score(chosen, state, {key: value[rows] for key, value in trace.items()})
            ratio = (score.log_prob_BCA - trace["log_prob"][rows]).exp()
            loss = (
                -(ratio * torch.tensor([1.0, -1.0, 0.5, -0.5])[:, None, None]).mean() - 1e-3 * score.entropy_BCA.mean()
            )
            loss = loss + slot.models.value(chosen, state).sub(1).square().mean()
            if spoil is not None and len(losses) == 1:
                loss = spoil(loss)
            slot.apply(loss)
            losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("case", EVERY_CASE)
def test_a_step_is_one_version_however_many_updates_it_takes(case: str):
    problem = Problem()
    slot = rl_slot(problem, case)
    step(slot, *problem.batch(8), "p0")
    assert (slot.step, slot.policy_version, slot.updates, list(slot.consumed)) == (1, 1, 2, ["p0"])


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda loss: loss * float("nan"), NonFiniteLoss),
        (lambda loss: loss + (loss - loss.detach()).sqrt(), NonFiniteGradient),
    ],
)
def test_a_step_whose_second_update_is_not_finite_never_happened(spoil: Callable[..., Any], error: type):
    problem = Problem()
    slot = rl_slot(problem, "mlp")
    step(slot, *problem.batch(8), "p0")
    before = everything(slot)
    batch = problem.batch(8)
    with pytest.raises(error, match=r"at step 1 \(policy version 1, update 3\)"):
        step(slot, *batch, "bad", spoil=spoil)
    assert same(everything(slot), before)
    assert all(p.grad is None for p in slot.named_parameters().values())
    step(slot, *batch, "p1")
    assert not same(everything(slot), before)
    assert list(slot.consumed) == ["p0", "p1"]


def test_actor_and_critic_learn_at_their_own_rates():
    slot = rl_slot(Problem(), "noise", value={"hidden": (8,), "lr": 0.02}, optimizer={"lr": 1e-3, "warmup_steps": 10})
    features, batch = Problem().batch(4)
    _, trace = slot.models.act_with_trace(features, batch.state_BS, seeds=range(4))
    score = slot.models.score(features, batch.state_BS, trace)
    metrics = slot.apply(score.log_prob_BCA.sum() + slot.models.value(features, batch.state_BS).sum())
    rates = {group["name"]: group["lr"] for group in slot.optimizer.param_groups}
    assert rates == pytest.approx({"head": 1e-4, "exploration": 1e-4, "value": 2e-3})
    assert metrics["learning_rate"] == pytest.approx(1e-4)
    assert metrics["grad_norm/actor"] > 0
    assert metrics["grad_norm/critic"] > 0
    in_groups = [p for group in slot.optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, in_groups)) == sorted(map(id, slot.named_parameters().values()))


def test_exploration_is_not_decayed_towards_a_std_of_one():
    slot = rl_slot(Problem(), "oft", optimizer={"weight_decay": 1.0, "lr": 0.1})
    features, batch = Problem().batch(4)
    _, trace = slot.models.act_with_trace(features, batch.state_BS, seeds=range(4))
    slot.apply(0 * slot.models.score(features, batch.state_BS, trace).log_prob_BCA.sum())
    assert slot.models.actor.log_std_A.detach().tolist() == [-2.5] * 3


def test_a_value_only_update_leaves_the_actor_alone():
    slot = rl_slot(Problem(), "mlp")
    features, batch = Problem().batch(4)
    before = everything(slot)["weights"]
    metrics = slot.apply(slot.models.value(features, batch.state_BS).square().mean())
    changed = {name for name, p in slot.named_parameters().items() if not torch.equal(p, before[name])}
    assert changed
    assert all(name.startswith("critic.") for name in changed)
    assert "grad_norm/actor" not in metrics


def test_a_huge_critic_gradient_does_not_shrink_the_actors():
    updates = []
    for weight in (1.0, 1e6):
        slot = rl_slot(Problem(), "mlp")
        recorded: list[torch.Tensor] = []
        slot.optimizer.register_step_pre_hook(
            lambda *_, slot=slot, recorded=recorded: recorded.append(slot.policy.head.out.weight.grad.clone())
        )
        features, batch = Problem().batch(4)
        _, trace = slot.models.act_with_trace(features, batch.state_BS, seeds=range(4))
        actor = slot.models.score(features, batch.state_BS, trace).log_prob_BCA.mean()
        slot.apply(actor + weight * slot.models.value(features, batch.state_BS).sub(5).square().mean())
        updates.append(recorded[0])
    assert torch.equal(*updates)


# --- versions and the reference ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY_CASE)
def test_a_snapshot_acts_as_its_version_did_while_training_goes_on(case: str):
    problem = Problem()
    slot = rl_slot(problem, case)
    features, batch = problem.batch(8)
    snapshot = slot.models.snapshot()
    before, trace = snapshot.act_with_trace(features, batch.state_BS, seeds=range(8))
    value = snapshot.value(features, batch.state_BS)
    for i in range(3):
        step(slot, *problem.batch(8), f"p{i}")
    after, again = snapshot.act_with_trace(features, batch.state_BS, seeds=range(8))
    assert (before == after).all()
    assert same(trace, again)
    assert torch.equal(snapshot.value(features, batch.state_BS), value)
    assert not any(p.requires_grad for module in snapshot.trained() for p in module.parameters())
    assert not np.allclose(slot.models.act_with_trace(features, batch.state_BS, seeds=range(8))[0], before, atol=1e-6)


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_reference_stays_where_reinforcement_learning_started(case: str):
    problem = Problem()
    slot = rl_slot(problem, case, reference=True)
    features, batch = problem.batch(8)
    _, trace = slot.models.act_with_trace(features, batch.state_BS, seeds=range(8))
    for i in range(3):
        step(slot, *problem.batch(8), f"p{i}")
    reference = slot.models.reference_log_prob(features, batch.state_BS, trace)
    assert (reference - trace["log_prob"]).abs().max() < 1e-5
    assert not reference.requires_grad
    with torch.no_grad():
        assert (slot.models.score(features, batch.state_BS, trace).log_prob_BCA - reference).abs().max() > 1e-3
    assert slot.models.snapshot().reference is slot.models.reference


def test_a_part_that_was_not_asked_for_is_refused():
    problem = Problem()
    slot = rl_slot(problem, "mlp", value=None)
    features, batch = problem.batch(2)
    _, trace = slot.models.act_with_trace(features, batch.state_BS, seeds=[0, 1])
    assert not slot.needs_fit
    with pytest.raises(HeadConfigurationError, match="value: none"):
        slot.models.value(features, batch.state_BS)
    with pytest.raises(HeadConfigurationError, match="reference: false"):
        slot.models.reference_log_prob(features, batch.state_BS, trace)


# --- checkpoints and export -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY_CASE)
def test_resuming_equals_never_having_stopped(case: str, tmp_path: Path):
    problem = Problem()
    steady = rl_slot(problem, case, reference=True)
    work = batches(problem, 5)
    for i in range(2):
        step(steady, *work[i], f"p{i}")
    if case == "sde":
        steady.models.actor.anneal(0.3)
    save_rl_slot(steady, tmp_path / "c")
    torch.manual_seed(99)
    resumed = load_rl_slot(tmp_path / "c", tap_width=tap_width)
    assert same(everything(resumed), everything(steady))
    for i in range(2, 5):
        assert step(resumed, *work[i], f"p{i}") == step(steady, *work[i], f"p{i}")
    assert same(everything(resumed), everything(steady))
    assert same(dict(resumed.models.reference.state_dict()), dict(steady.models.reference.state_dict()))


def test_the_equality_would_notice_a_forgotten_generator(tmp_path: Path):
    problem = Problem()
    slot = rl_slot(problem, "mlp")
    save_rl_slot(slot, tmp_path / "c")
    resumed = load_rl_slot(tmp_path / "c", tap_width=tap_width)
    resumed.generator.manual_seed(123)
    work = problem.batch(8)
    assert step(resumed, *work, "p0") != step(slot, *work, "p0")


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_altered_file_is_refused_by_name(name: str, tmp_path: Path):
    save_rl_slot(rl_slot(Problem(), "sde", reference=True), tmp_path / "c")
    assert {path.name for path in (tmp_path / "c").iterdir()} == {f"{n}.safetensors" for n in FILES} | {"slot.json"}
    content = bytearray((tmp_path / "c" / f"{name}.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "c" / f"{name}.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        load_rl_slot(tmp_path / "c", tap_width=tap_width)


def test_a_checkpoint_of_the_other_kind_is_refused(tmp_path: Path):
    slot = rl_slot(Problem(), "mlp")
    save_rl_slot(slot, tmp_path / "rl")
    save_slot(Slot(slot.policy), tmp_path / "sft")
    with pytest.raises(CheckpointError, match="kind 'sft', allowed: 'rl'"):
        load_rl_slot(tmp_path / "sft", tap_width=tap_width)
    with pytest.raises(CheckpointError):
        load_slot(tmp_path / "rl", tap_width=tap_width)


def test_what_is_exported_is_the_policy_without_its_critic_and_its_noise(tmp_path: Path):
    backbone = load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))
    data = LeRobotDataset.open(make_dataset(tmp_path / "push", cameras=1))
    spec = make_spec("mlp", pca_frames=16)
    spec = spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"image_size": 32})})
    sft = Slot.create(spec=spec, schema=data.schema, statistics=dataset_statistics(data), tap_width=backbone.tap_width)
    source = SampleSource(data, spec.dataset, spec.head.horizon)
    frames = [FrameRef(episode=0, frame=i % data.lengths[0]) for i in range(16)]
    batch = source.batch(frames)
    features = backbone.encode(to_features(batch, sft.query_tokens), [sft.taps] * 16)
    sft.fit(features, batch)
    wanted = ActorCriticSpec.model_validate({"exploration": CASES["mlp"][1], "executed_steps": 2, "value": {}})
    slot = RlSlot(sft.policy, wanted, optimizer=OptimizerSpec(lr=1e-3), total_steps=9, seed=41)
    slot.fit(features)
    _, trace = slot.models.act_with_trace(features, batch.state_BS, seeds=range(16))
    with slot.whole_step(["p0"]):
        slot.apply(-slot.models.score(features, batch.state_BS, trace).log_prob_BCA.mean())
    probe = run_probe(slot.policy, backbone, source, episode=0, frames=[0, 2])
    provenance = Provenance(
        job_id="j", tenant_id="t", dataset_fingerprint="f" * 64, final_metrics={}, evaluation={"success": 0.5}
    )
    export_adapter(slot, tmp_path / "adapter", backbone=backbone, provenance=provenance, probe=probe)
    assert load_file(tmp_path / "adapter" / "adapter.safetensors").keys() == slot.policy.head.state_dict().keys()
    training = json.loads((tmp_path / "adapter" / "manifest.json").read_text())["training"]
    assert (training["kind"], training["seed"], training["steps"], training["partitions"]) == ("rl", 41, 1, 1)
    adapter = load_adapter(tmp_path / "adapter", backbone)
    expected = slot.models.act(features, batch.state_BS, seeds=range(16))
    assert (adapter.policy.act(features, batch.state_BS, seed=0) == expected).all()
