"""Policies that explore: what they did can be scored again exactly, and without exploration they are imitation's.

Shapes: B samples, K denoising steps, H horizon, C executed steps, A action dims.
"""

import pytest
import torch

from gpu_runtime.models.actor_critic import ActorCritic
from gpu_runtime.models.errors import BatchMismatch, HeadConfigurationError
from gpu_runtime.models.heads.density import Normal
from gpu_runtime.models.heads.traces import join_traces, split_trace
from gpu_runtime.protocol.exploration import ActorCriticSpec, FlowNoiseSpec, GaussianSpec
from tests.support.exploration import CASES, generators, rl_slot, rollout
from tests.support.policies import Problem

EVERY_CASE = list(CASES)


# --- log-probability --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY_CASE)
def test_with_unchanged_weights_the_recomputed_log_probability_is_the_stored_one(case: str):
    slot, features, state, _, trace = rollout(case)
    slot.models.actor.train()  # whatever mode the trainer leaves modules in: there is no dropout here
    recomputed = slot.models.actor.log_prob(features, state, trace)
    assert recomputed.shape == trace["log_prob"].shape == (9, 3, 3)
    assert recomputed.requires_grad
    assert not trace["log_prob"].requires_grad
    assert (recomputed - trace["log_prob"]).abs().max() < 1e-5


@pytest.mark.parametrize("case", EVERY_CASE)
def test_so_it_is_in_minibatches_of_another_composition(case: str):
    slot, features, state, _, trace = rollout(case)
    rows = split_trace(trace)
    for indices in ([4], [8, 0, 3], [7, 6, 5, 2, 1]):
        given = join_traces([rows[i] for i in indices])
        recomputed = slot.models.actor.log_prob([features[i] for i in indices], state[indices], given)
        assert (recomputed - trace["log_prob"][indices]).abs().max() < 1e-5


@pytest.mark.parametrize("case", ["mlp", "oft"])
def test_so_it_is_where_actions_are_large_and_the_spread_is_small(case: str):
    """A mean of 4 in fp32 is known to 2e-7; divided by a std of 0.08 and times a z of 4 that is more than 1e-5."""
    problem = Problem()
    slot = rl_slot(problem, case)
    with torch.no_grad():
        for parameter in slot.policy.head.out.parameters():
            parameter.mul_(10)
    features, batch = problem.batch(96)
    state = slot.policy.model_state(batch.state_BS)
    actor = slot.models.actor
    alone = [actor.act_with_trace([features[i]], state[i : i + 1], generators(i))[1] for i in range(96)]
    trace = join_traces(alone)
    assert trace["sample"].abs().max() > 3
    assert actor.log_std_A.exp().max() < 0.1
    for size in (96, 33, 5):
        for part in torch.arange(96).split(size):
            given = {name: value[part] for name, value in trace.items()}
            again = actor.log_prob([features[i] for i in part], state[part], given)
            assert (again - given["log_prob"]).abs().max() < 1e-6


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_equality_would_notice_other_weights(case: str):
    slot, features, state, _, trace = rollout(case)
    with torch.no_grad():
        for parameter in slot.policy.head.parameters():
            parameter.mul_(1.05)
    recomputed = slot.models.actor.log_prob(features, state, trace)
    assert (recomputed - trace["log_prob"]).abs().max() > 1e-3


@pytest.mark.parametrize("case", EVERY_CASE)
def test_raising_the_log_probability_of_what_was_done_makes_it_likelier(case: str):
    slot, features, state, _, trace = rollout(case)
    for _ in range(5):
        slot.apply(-slot.models.actor.log_prob(features, state, trace).mean())
    assert slot.models.actor.log_prob(features, state, trace).mean() > trace["log_prob"].mean() + 0.01


def test_elementwise_densities_and_their_gradients_are_those_of_torch():
    mean = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    log_std = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    x = torch.randn(4, 5, dtype=torch.float64)
    ours, theirs = Normal(mean=mean, std=log_std.exp()), torch.distributions.Normal(mean, log_std.exp())
    assert torch.allclose(ours.log_prob(x), theirs.log_prob(x))
    assert torch.allclose(ours.entropy(), theirs.entropy())
    gradients = [torch.autograd.grad(d.log_prob(x).sum(), (mean, log_std)) for d in (ours, theirs)]
    assert all(torch.allclose(a, b) for a, b in zip(*gradients, strict=True))


def test_an_element_without_randomness_contributes_nothing_and_has_no_gradient():
    mean, std = torch.zeros(2, requires_grad=True), torch.tensor([0.0, 0.5], requires_grad=True)
    step = Normal(mean=mean, std=std)
    log_prob = step.log_prob(torch.tensor([3.0, 0.1]))
    (log_prob.sum() + step.entropy().sum()).backward()
    assert log_prob[0] == 0
    assert step.entropy()[0] == 0
    assert mean.grad[0] == std.grad[0] == 0
    assert torch.isfinite(mean.grad).all()
    assert torch.isfinite(std.grad).all()
    assert float(step.sample(torch.ones(2))[0].detach()) == 0


# --- without exploration it is imitation's policy ---------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY_CASE)
def test_evaluation_is_what_imitation_would_do(case: str):
    problem = Problem()
    slot = rl_slot(problem, case)
    features, batch = problem.batch(6)
    for i in range(6):
        expected = slot.policy.act(features[i : i + 1], batch.state_BS[i : i + 1], seed=i)
        assert (slot.models.act(features[i : i + 1], batch.state_BS[i : i + 1], seeds=[i]) == expected).all()
        together = slot.models.act(features, batch.state_BS, seeds=range(6))[i : i + 1]
        assert abs(together - expected).max() < 1e-5


# --- batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY_CASE)
def test_a_sample_has_the_same_trace_alone_and_in_any_group(case: str):
    slot, features, state, actions, trace = rollout(case)
    order = [3, 8, 0]
    chosen = [features[i] for i in order]
    again, regrouped = slot.models.actor.act_with_trace(chosen, state[order], generators(*order))
    alone, single = slot.models.actor.act_with_trace([features[3]], state[3:4], generators(3))
    assert torch.allclose(again, actions[order], atol=1e-5)
    assert torch.allclose(alone, actions[3:4], atol=1e-5)
    for name, value in trace.items():
        assert torch.allclose(regrouped[name], value[order], atol=1e-5), name
        assert torch.allclose(single[name], value[3:4], atol=1e-5), name


@pytest.mark.parametrize("case", EVERY_CASE)
def test_another_seed_is_another_trace(case: str):
    slot, features, state, actions, _ = rollout(case)
    other, _ = slot.models.actor.act_with_trace(features, state, generators(*range(100, 109)))
    assert not torch.allclose(other, actions, atol=1e-2)


@pytest.mark.parametrize("case", EVERY_CASE)
def test_exploring_and_scoring_leave_the_process_wide_random_state_alone(case: str):
    torch.manual_seed(1)
    slot, features, state, _, trace = rollout(case)
    before = torch.get_rng_state()
    slot.models.actor.act_with_trace(features, state, generators(*range(9)))
    slot.models.actor.score(features, state, trace)
    assert torch.equal(torch.get_rng_state(), before)


# --- gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY_CASE)
def test_gradients_reach_this_tenants_parameters_and_nothing_else(case: str):
    slot, features, state, _, trace = rollout(case, reference=True)
    neighbour = rl_slot(Problem(seed=4), case)
    features = [{tap: value.requires_grad_() for tap, value in sample.items()} for sample in features]
    trace = {name: value.requires_grad_() if value.is_floating_point() else value for name, value in trace.items()}
    score = slot.models.actor.score(features, state, trace)
    (score.log_prob_BCA.sum() + score.entropy_BCA.sum()).backward()
    reached = {name for name, p in slot.named_parameters().items() if p.grad is not None}
    assert reached == {name for name in slot.named_parameters() if name.startswith("actor.")}
    assert all(value.grad is None for sample in features for value in sample.values())
    assert all(value.grad is None for value in trace.values())
    assert all(p.grad is None for p in neighbour.named_parameters().values())
    assert all(p.grad is None for p in slot.models.reference.parameters())


def test_a_log_std_at_its_bound_comes_back():
    slot, features, state, _, trace = rollout("mlp", exploration={"log_std_max": -2.4}, optimizer={"lr": 0.5})
    log_std = slot.models.actor.log_std_A
    for direction, bound in ((1, -2.4), (-1, -5.0)):
        for _ in range(20):
            slot.apply(-direction * slot.models.actor.entropy(features, state, trace).sum())
            assert ((log_std >= -5.0) & (log_std <= -2.4)).all()
        assert log_std.detach().tolist() == pytest.approx([bound] * 3)


def test_the_log_std_starts_where_it_is_told():
    slot = rl_slot(Problem(), "oft", exploration={"log_std_init": -1.25})
    assert slot.models.actor.log_std_A.detach().tolist() == [-1.25] * 3
    assert rl_slot(Problem(), "oft").models.actor.log_std_A.detach().tolist() == [-2.5] * 3


# --- what is explored and executed ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", EVERY_CASE)
def test_a_dimension_that_is_not_explored_neither_varies_nor_counts(case: str):
    slot, features, state, actions, trace = rollout(case, unexplored=("gripper",))
    if case in ("mlp", "oft"):
        assert torch.equal(actions[..., 2], slot.models.actor.act(features, state, [])[..., 2])
    score = slot.models.actor.score(features, state, trace)
    assert trace["log_prob"][..., 2].abs().max() == 0
    assert score.log_prob_BCA[..., 2].abs().max() == score.entropy_BCA[..., 2].abs().max() == 0
    assert (trace["log_prob"][..., :2] != 0).all()


def test_a_dimension_of_the_robot_that_never_moves_is_not_explored():
    problem = Problem()
    still = {
        name: (*getattr(problem.statistics.action, name)[:2], 0.25) for name in ("mean", "min", "max", "q01", "q99")
    }
    action = problem.statistics.action.model_copy(update=still | {"std": (*problem.statistics.action.std[:2], 0.0)})
    problem.statistics = problem.statistics.model_copy(update={"action": action})
    spec = ActorCriticSpec(exploration=GaussianSpec(), executed_steps=2)
    models = ActorCritic(problem.slot("oft", fitted=False).policy, spec, seed=0)
    assert models.actor.explored_A.tolist() == [True, True, False]


@pytest.mark.parametrize("case", EVERY_CASE)
@pytest.mark.parametrize("executed", [1, 4])
def test_log_probabilities_cover_the_executed_steps_only(case: str, executed: int):
    slot, features, state, actions, trace = rollout(case, executed=executed)
    assert actions.shape == (9, 4, 3)
    assert slot.models.actor.entropy(features, state, trace).shape == trace["log_prob"].shape == (9, executed, 3)


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "exploration"), [("sde", "gaussian"), ("mlp", "flow_sde"), ("oft", "flow_noise")])
def test_exploration_that_does_not_fit_the_head_is_refused(case: str, exploration: str):
    with pytest.raises(HeadConfigurationError, match=rf"exploration\.type: '{exploration}', allowed"):
        rl_slot(Problem(), case, value=None, exploration={"type": exploration})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executed": 5}, "executed_steps: 5, allowed: 1 to the horizon, 4"),
        ({"unexplored": ("elbow",)}, "'elbow' is no action dimension"),
        ({"unexplored": ("x", "y", "gripper")}, "0 of 3 action dimensions are left"),
    ],
)
def test_a_specification_that_contradicts_the_robot_is_refused(options: dict, message: str):
    with pytest.raises(HeadConfigurationError, match=message):
        rl_slot(Problem(), "mlp", **options)


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match=r"log_std_init 1\.0 must lie within"):
        GaussianSpec(log_std_init=1.0)
    with pytest.raises(ValueError, match=r"std_min 0\.5 must be below"):
        FlowNoiseSpec(std_min=0.5)


def test_a_trace_of_another_policy_is_refused():
    slot, features, state, _, trace = rollout("sde")
    with pytest.raises(BatchMismatch, match=r"trace\['sample'\]: missing"):
        rl_slot(Problem(), "mlp").models.actor.log_prob(features, state, trace)
    with pytest.raises(BatchMismatch, match=r"trace\['step'\]"):
        rl_slot(Problem(), "sde-joint-mean").models.actor.log_prob(features, state, trace)
    with pytest.raises(BatchMismatch, match=r"trace\['chain'\].*allowed"):
        slot.models.actor.log_prob(features[:2], state[:2], trace)
    with pytest.raises(BatchMismatch, match="as in the first"):
        join_traces([trace, rollout("mlp")[-1]])
