"""The critic: it pools real tokens only, sees the robot's own state, and needs no action.

Shapes: B samples.
"""

import pytest
import torch

from gpu_runtime.models.errors import BatchMismatch, FeatureMismatch, NotFitted
from gpu_runtime.models.heads.base import HeadShape
from gpu_runtime.models.heads.value import ValueHead
from gpu_runtime.protocol.exploration import ValueSpec
from tests.support.exploration import ragged, rl_slot
from tests.support.policies import WIDTH, Problem


def critic(**options) -> ValueHead:
    """Reads the tap ``layer:-1`` and a state of two dimensions."""
    shape = HeadShape(action_dim=3, state_dim=2, feature_widths={"layer:-1": WIDTH})
    head = ValueHead(ValueSpec.model_validate({"standardize": False} | options), shape, executed=3)
    head.reset_parameters(torch.Generator().manual_seed(0))
    return head


def test_it_is_the_stated_network():
    head = critic()
    assert [tuple(layer.weight.shape) for layer in head.hidden] == [(512, WIDTH + 2), (256, 512), (128, 256)]
    assert head.out.bias is None
    assert head.out.weight.shape == (1, 128)
    assert float(head.out.weight.detach().std()) == pytest.approx(0.02, rel=0.2)
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), critic().parameters(), strict=True))  # by the seed


def test_a_longer_neighbour_does_not_change_a_value():
    head, features, state = critic(), ragged([3, 17, 8]), torch.randn(3, 2)
    together = head(features, state)
    alone = torch.cat([head(features[i : i + 1], state[i : i + 1]) for i in range(3)])
    assert torch.allclose(together, alone, atol=1e-6)


def test_the_pool_is_the_mean_of_real_tokens():
    head, features, state = critic(), ragged([3, 17]), torch.randn(2, 2)
    means = [{"layer:-1": sample["layer:-1"].mean(dim=0, keepdim=True)} for sample in features]
    assert torch.allclose(head(features, state), head(means, state), atol=1e-6)
    padded = [{"layer:-1": torch.cat([features[0]["layer:-1"], torch.zeros(14, WIDTH)])}, features[1]]
    assert abs(float((head(features, state) - head(padded, state))[0].detach())) > 1e-4


def test_it_sees_the_state():
    head, features = critic(), ragged([4, 4])
    values = [head(features, torch.full((2, 2), x)).detach() for x in (0.0, 1.0)]
    assert (values[0] - values[1]).abs().min() > 1e-4
    with pytest.raises(BatchMismatch, match="state: missing, allowed: 2"):
        head(features, None)


def test_it_learns_a_value_through_the_constant_part_of_a_frozen_bases_features():
    problem = Problem()
    slot = rl_slot(problem, "mlp", value={"hidden": (32,), "lr": 1e-2})
    losses = []
    for _ in range(150):
        features, batch = problem.batch(32)
        wanted = torch.as_tensor(batch.actions_BHA[:, 0, 2]) + 0.3 * torch.as_tensor(batch.state_BS[:, 1] + 2)
        loss = (slot.models.value(features, batch.state_BS) - wanted).square().mean()
        slot.apply(loss)
        losses.append(float(loss.detach()))
    assert sum(losses[-10:]) < 0.1 * sum(losses[:10])


def test_a_final_observation_costs_a_prefix_only(monkeypatch: pytest.MonkeyPatch):
    problem = Problem()
    slot = rl_slot(problem, "sde")
    features, batch = problem.batch(3)
    expected = slot.models.value(features, batch.state_BS)

    def refuse(*_: object) -> None:
        raise AssertionError("the action head ran")

    monkeypatch.setattr(slot.policy.head, "_hidden", refuse)
    monkeypatch.setattr(slot.policy.head, "forward", refuse)
    assert torch.equal(slot.models.value(features, batch.state_BS), expected)


def test_its_gradient_does_not_reach_the_features():
    head, features = critic(), ragged([4, 5])
    for sample in features:
        sample["layer:-1"].requires_grad_()
    head(features, torch.zeros(2, 2)).sum().backward()
    assert all(sample["layer:-1"].grad is None for sample in features)
    assert all(p.grad is not None for p in head.parameters())


def test_statistics_are_of_pooled_features_and_missing_ones_are_refused():
    head, features, state = critic(standardize=True), ragged([6] * 40), torch.zeros(40, 2)
    with pytest.raises(NotFitted):
        head(features, state)
    shifted = [{"layer:-1": 100 + sample["layer:-1"]} for sample in features]
    head.fit(shifted)
    pooled = torch.stack([sample["layer:-1"].mean(dim=0) for sample in shifted])
    assert torch.allclose(head.standardizer.mean_TD[0], pooled.mean(dim=0), atol=1e-4)
    standard = head.standardizer(pooled[:, None])[:, 0]
    assert torch.allclose(standard.std(dim=0, correction=0), torch.ones(WIDTH), atol=1e-2)


def test_it_gives_one_value_per_executed_step_where_rewards_are_of_single_steps():
    problem = Problem()
    for executed, value, shape in ((3, {"per_step": True}, (5, 3)), (1, {"per_step": True}, (5, 1)), (3, {}, (5,))):
        slot = rl_slot(problem, "oft", executed=executed, value={"hidden": (8,)} | value)
        features, batch = problem.batch(5)
        values = slot.models.value(features, batch.state_BS).detach()
        assert values.shape == shape
        assert len(set(values.flatten().tolist())) == values.numel()


def test_the_episodes_progress_is_told_exactly_where_it_is_asked_for():
    features, state, progress = ragged([4, 4]), torch.zeros(2, 2), torch.tensor([0.0, 1.0])
    told = critic(episode_progress=True)
    assert not torch.allclose(told(features, state, progress), told(features, state, 1 - progress), atol=1e-5)
    with pytest.raises(BatchMismatch, match="progress: missing"):
        told(features, state)
    with pytest.raises(BatchMismatch, match="progress: given"):
        critic()(features, state, progress)


@pytest.mark.parametrize("rows", [torch.zeros(4, WIDTH + 1), torch.zeros(0, WIDTH), torch.zeros(WIDTH)])
def test_features_of_another_shape_are_refused(rows: torch.Tensor):
    with pytest.raises(FeatureMismatch, match="layer:-1"):
        critic()([{"layer:-1": rows}], torch.zeros(1, 2))
