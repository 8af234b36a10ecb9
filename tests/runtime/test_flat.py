"""Parameters side by side in one tensor: the same training as with each of them in a tensor of its own."""

import copy

import pytest
import torch
from torch import nn

from gpu_runtime.models.errors import NonFiniteGradient
from gpu_runtime.models.flat import ALIGNMENT_BYTES, Flat, stack_wholes
from gpu_runtime.models.optimization import TrainedWeights
from gpu_runtime.protocol.specs import OptimizerSpec

SPEC = OptimizerSpec(lr=1e-2, weight_decay=0.1, grad_clip=1.0)
RATE, CLIP = 1e-2, 0.5


def make_module(seed: int = 0) -> nn.Module:
    """Sizes that leave gaps: 3, 15, 5 and 35 numbers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 7), nn.LayerNorm(7))


def loss_of(module: nn.Module, step: int) -> torch.Tensor:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(step))
    return (module(x) * torch.arange(7.0)).square().mean()


def train(module: nn.Module, weights: TrainedWeights, steps: range) -> None:
    for step in steps:
        loss_of(module, step).backward()
        weights.update(norm=weights.gradient_norm(), rate=RATE, clip=CLIP)


def test_training_equals_an_adamw_over_separate_tensors():
    module = make_module()
    separate = copy.deepcopy(module)
    weights = TrainedWeights.of(SPEC, module)
    matrices = [p for p in separate.parameters() if p.ndim >= 2]
    vectors = [p for p in separate.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=SPEC.betas, eps=SPEC.eps, fused=True)
    for step in range(30):
        loss_of(separate, step).backward()
        torch.nn.utils.clip_grad_norm_(separate.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    train(module, weights, range(30))
    for own, other in zip(module.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)


def test_every_parameter_begins_where_a_tensor_of_its_own_would_and_gaps_stay_zero():
    module = make_module()
    weights = TrainedWeights.of(SPEC, module)
    train(module, weights, range(5))
    for group in weights.groups:
        used = torch.zeros_like(group.whole, dtype=torch.bool)
        for _, view in group.named(used):
            view.fill_(True)
        assert not bool(group.whole.detach()[~used].any())
        assert not bool(used.all()), "sizes without gaps prove nothing"
    assert all(p.data_ptr() % ALIGNMENT_BYTES == 0 for p in module.parameters())


def test_moments_go_by_parameter_name_and_restoring_them_goes_on_to_the_last_bit():
    module = make_module()
    weights = TrainedWeights.of(SPEC, module)
    train(module, weights, range(7))
    resumed = copy.deepcopy(module)
    again = TrainedWeights.of(SPEC, resumed)
    kept = {name: tensor.clone() for name, tensor in weights.moments().items()}
    assert set(kept) == {f"{k}/{n}" for k in ("step", "exp_avg", "exp_avg_sq") for n, _ in module.named_parameters()}
    assert kept["exp_avg/2.weight"].shape == (7, 5)
    again.restore_moments(kept)
    train(module, weights, range(7, 12))
    train(resumed, again, range(7, 12))
    assert all(map(torch.equal, module.parameters(), resumed.parameters()))
    forgetful = copy.deepcopy(module)
    train(forgetful, TrainedWeights.of(SPEC, forgetful), range(12, 15))
    train(module, weights, range(12, 15))
    assert not all(map(torch.equal, module.parameters(), forgetful.parameters()))


def test_rows_of_a_common_tensor_train_as_tensors_of_their_own():
    alone, moved = (make_module(3) for _ in range(2))
    weights = [TrainedWeights.of(SPEC, module) for module in (alone, moved, make_module(4))]
    commons = [stack_wholes([own[1], own[2]]) for own in zip(*[w.groups for w in weights], strict=True)]
    assert all(group.lives_in(common[0]) for group, common in zip(weights[1].groups, commons, strict=True))
    train(alone, weights[0], range(6))
    train(moved, weights[1], range(6))
    assert all(map(torch.equal, alone.parameters(), moved.parameters()))


def test_a_parameter_without_a_gradient_counts_as_zero_and_gradients_are_gathered_once():
    module = make_module()
    weights = TrainedWeights.of(SPEC, module)
    module[0](torch.ones(2, 3)).sum().backward()
    weights.gather()
    first = [group.whole.grad.clone() for group in weights.groups]
    assert all(p.grad is None for p in module.parameters())
    weights.gather()
    assert all(torch.equal(a, g.whole.grad) for a, g in zip(first, weights.groups, strict=True))
    named = {n: g for group in weights.groups for n, g in group.named(group.whole.grad)}
    assert bool(named["0.weight"].any())
    assert not bool(named["2.weight"].any())
    weights.clear()
    assert all(group.whole.grad is None for group in weights.groups)


def test_the_parameter_with_a_bad_gradient_is_named():
    module = make_module()
    weights = TrainedWeights.of(SPEC, module)
    loss_of(module, 0).backward()
    module[2].weight.grad[1, 2] = float("nan")
    with pytest.raises(NonFiniteGradient, match=r"gradient of 2\.weight is not finite"):
        weights.gradient_norm()


def test_a_copied_module_shares_nothing_with_the_one_that_trains():
    module = make_module()
    flat = Flat(dict(module.named_parameters()))
    copied = copy.deepcopy(module)
    flat.whole.data.zero_()
    assert not any(bool(p.any()) for p in module.parameters())
    assert bool(copied[0].weight.any())
