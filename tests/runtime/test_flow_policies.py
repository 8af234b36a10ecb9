"""Flow policies: the noise of their denoising chains is the stated one, and without it they are the ODE.

Shapes: B samples, K denoising steps, H horizon, C executed steps, A action dims.
"""

import math

import pytest
import torch

from gpu_runtime.models.errors import HeadConfigurationError
from gpu_runtime.models.heads import chunks, flow
from gpu_runtime.models.heads.flow_transitions import sde_step
from gpu_runtime.models.heads.traces import join_traces, split_trace
from tests.support.exploration import FLOWS, generators, ragged, rl_slot, rollout
from tests.support.policies import Problem

# --- the chain is the ODE's but for its random steps -------------------------------------------------------------


@pytest.mark.parametrize("steps", ["one", "joint_mean"])
def test_noise_level_zero_is_the_ode_sampler_bit_for_bit(steps: str):
    slot, features, state, actions, trace = rollout("sde", exploration={"noise_level": 0, "steps": steps})
    initial = torch.stack([torch.randn(4, 3, generator=g) for g in generators(*range(9))])
    assert torch.equal(actions, slot.policy.head.integrate(initial, features, state))
    if steps == "one":
        assert trace["log_prob"].abs().max() == 0
    for i in range(9):
        one, _ = slot.models.actor.act_with_trace(features[i : i + 1], state[i : i + 1], generators(i))
        assert torch.equal(one, slot.policy.head.act(features[i : i + 1], state[i : i + 1], generators(i)[0]))


def test_the_comparison_with_the_ode_would_notice_a_little_noise():
    slot, features, state, actions, _ = rollout("sde", exploration={"noise_level": 0.01})
    initial = torch.stack([torch.randn(4, 3, generator=g) for g in generators(*range(9))])
    assert not torch.allclose(actions, slot.policy.head.integrate(initial, features, state), atol=1e-4)


def test_the_velocity_of_rollouts_is_the_one_that_imitation_trains():
    problem = Problem()
    options = {"tap": "layer:-1", "dropout": 0.0, "noise_draws": 1, "layers": 3}  # cross, self, cross
    slot = rl_slot(problem, "sde", head=options)
    head, features, state = slot.policy.head, ragged([5, 9, 7, 2]), torch.randn(4, 2)
    data, mask = torch.randn(4, 4, 3), torch.tensor([[True] * 4] * 3 + [[True, True, False, False]])
    trained = head.loss(features, state, data, mask, torch.Generator().manual_seed(3)).total
    # what the loss drew, drawn again; at times of denoising steps the two must meet
    generator = torch.Generator().manual_seed(3)
    held, noise = chunks.hold_last_valid(data, mask), torch.randn(4, 4, 3, generator=generator)
    time = flow.sample_time(4, generator)
    field = head.field(features, state)
    hidden = head._hidden(flow.interpolate(noise, held, time), flow.bucket(time), state, field.condition, None)
    error = (head.decoder(hidden).flatten(0, 1) - (held - noise)).square()
    assert torch.equal(chunks.masked_mean(error, mask), trained)
    for step, bucket in enumerate(flow.euler_buckets(4)):
        velocity, _ = field(noise, torch.full((4,), step))
        condition = head._condition(features)
        expected = head._velocity(noise, torch.full((4,), float(bucket)), state, condition, None)
        assert torch.equal(velocity, expected)


@pytest.mark.parametrize("case", ["sde", "noise"])
def test_all_steps_but_the_random_one_follow_that_velocity(case: str):
    slot, features, state, _, trace = rollout(case)
    head, chain = slot.policy.head, trace["chain"]
    condition = head._condition(features)
    for k, bucket in enumerate(flow.euler_buckets(4)):
        velocity = head._velocity(chain[:, k], torch.full((9,), float(bucket)), state, condition, None)
        off = (chain[:, k + 1] - chain[:, k] - velocity / 4).abs().amax(dim=(1, 2))
        assert (off[trace["step"] != k] < 1e-6).all()
        assert (off[trace["step"] == k] > 1e-3).all()


def test_every_sample_draws_its_own_random_step():
    _, _, _, _, trace = rollout("sde", samples=400)
    counts = torch.bincount(trace["step"], minlength=4)
    assert counts.sum() == 400
    assert (counts - 100).abs().max() < 45  # 5 standard deviations of a binomial


@pytest.mark.parametrize("case", FLOWS)
def test_a_longer_prompt_beside_it_changes_nothing(case: str):
    slot = rl_slot(Problem(), case, head={"tap": "layer:-1"})
    features, state = ragged([4, 11, 6]), torch.randn(3, 2)
    _, together = slot.models.actor.act_with_trace(features, state, generators(0, 1, 2))
    for i in range(3):
        _, alone = slot.models.actor.act_with_trace(features[i : i + 1], state[i : i + 1], generators(i))
        assert torch.allclose(alone["chain"], together["chain"][i : i + 1], atol=1e-5)
        assert torch.allclose(alone["log_prob"], together["log_prob"][i : i + 1], atol=1e-5)


# --- the distributions are the stated ones ----------------------------------------------------------------------


def openpi_sde_step(x, u, s: float, d: float, level: float):
    """The published formulas in their own convention: time runs from 1 (noise) to 0 (data), u = noise - data."""
    data, noise = x - u * s, x + u * (1 - s)
    sigma = level * math.sqrt(s / (1 - s if s < 1 else d))
    mean = data * (1 - (s - d)) + noise * (s - d - sigma**2 * d / (2 * s))
    return mean, math.sqrt(d) * sigma


@pytest.mark.parametrize("steps", [1, 2, 4, 10])
@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_the_sde_step_is_the_published_one_with_time_reversed(steps: int, level: float):
    x, velocity = torch.randn(1, 4, 3), torch.randn(1, 4, 3)
    for k in range(steps):
        ours = sde_step(x, velocity, step_M=torch.tensor([k]), level_M=torch.tensor([level]), steps=steps)
        mean, std = openpi_sde_step(x, -velocity, 1 - k / steps, 1 / steps, level)
        assert torch.allclose(ours.mean, mean, atol=1e-5)
        assert float(ours.std) == pytest.approx(std, abs=1e-6)


def integrate_known_flow(drift_sign: float, *, steps: int = 100, samples: int = 20_000) -> tuple[float, float]:
    """Mean and std at time 1 when all steps are random and data is N(2, 0.5^2), whose velocity is known exactly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 1, 1, generator=generator)
    for k in range(steps):
        t = k / steps
        score = (x - 2 * t) / ((1 - t) ** 2 + t**2 * 0.25)
        velocity = 2 + (t * 0.25 - (1 - t)) * score
        level = torch.full((samples,), 0.7)
        step = sde_step(x, velocity, step_M=torch.full((samples,), k), level_M=level, steps=steps)
        euler = flow.euler_step(x, velocity, steps)
        mean = euler + drift_sign * (step.mean - euler)
        x = mean + step.std * torch.randn(x.shape, generator=generator)
    return float(x.mean()), float(x.std())


def test_the_sde_arrives_at_the_same_distribution_as_the_ode():
    mean, std = integrate_known_flow(1.0)
    assert mean == pytest.approx(2, abs=0.03)
    assert std == pytest.approx(0.5, rel=0.04)


@pytest.mark.parametrize("drift_sign", [0.0, -1.0])
def test_that_would_notice_a_missing_or_reversed_drift_correction(drift_sign: float):
    mean, std = integrate_known_flow(drift_sign)
    assert abs(mean - 2) > 0.1 or abs(std / 0.5 - 1) > 0.1


def by_hand(slot, features, state, trace) -> torch.Tensor:
    """Sum of all terms of a joint chain, step by step, [B, C, A]."""
    head, chain = slot.policy.head, trace["chain"]
    condition = head._condition(features)
    total = torch.distributions.Normal(0, 1).log_prob(chain[:, 0])
    for k, bucket in enumerate(flow.euler_buckets(4)):
        times = torch.full((len(features),), float(bucket))
        velocity = head._velocity(chain[:, k], times, state, condition, None)
        mean, std = openpi_sde_step(chain[:, k], -velocity, 1 - k / 4, 1 / 4, 0.5)
        total = total + torch.distributions.Normal(mean, std).log_prob(chain[:, k + 1])
    return total[:, :3]


def test_a_joint_log_probability_is_the_sum_or_the_mean_of_the_noise_and_every_step():
    slot, features, state, _, trace = rollout("sde-joint-sum")
    total = by_hand(slot, features, state, trace)
    assert torch.allclose(slot.models.actor.log_prob(features, state, trace), total, atol=2e-5)
    slot, features, state, _, trace = rollout("sde-joint-mean")
    assert torch.allclose(trace["log_prob"], by_hand(slot, features, state, trace) / 5, atol=1e-5)


def stated(slot, trace, features, state):
    """Mean and std of every random transition by formulas of this file, [B, C, A], and where it went."""
    actor, head = slot.models.actor, slot.policy.head
    if "sample" in trace:
        mean = head.act(features, state, torch.Generator())[:, :3]
        return mean, actor.log_std_A.exp().expand_as(mean), trace["sample"]
    rows = torch.arange(len(features))
    x, after, step = trace["chain"][rows, trace["step"]], trace["chain"][rows, trace["step"] + 1], trace["step"]
    velocity, hidden = head.field(features, state)(x, step)
    if actor.std_is_learned:
        return x + velocity / 4, 0.08 + 0.08 * (actor.noise(hidden).tanh() + 1) / 2, after
    each = [openpi_sde_step(x[i], -velocity[i], 1 - int(step[i]) / 4, 1 / 4, 0.5) for i in range(len(features))]
    return torch.stack([m for m, _ in each]), torch.tensor([s for _, s in each])[:, None, None].expand_as(x), after


@pytest.mark.parametrize("case", ["mlp", "oft", "sde", "noise"])
def test_sampled_next_states_have_the_stated_mean_and_covariance(case: str):
    samples = 4000
    slot, features, state, _, trace = rollout(case, samples=samples)
    with torch.no_grad():
        mean, std, after = stated(slot, trace, features, state)
    z = ((after - mean) / std).flatten(1).double()
    # standard errors: 1 / sqrt(n) of a mean and a correlation, sqrt(2 / n) of a variance; 5 of them are allowed
    assert z.mean(0).abs().max() < 5 / samples**0.5
    covariance = torch.cov(z.T)
    assert (covariance.diagonal() - 1).abs().max() < 5 * (2 / samples) ** 0.5
    assert (covariance - covariance.diagonal().diag()).abs().max() < 5 / samples**0.5
    # and the log-density is that of this normal distribution
    expected = torch.distributions.Normal(mean, std).log_prob(after)[:, :3]
    assert torch.allclose(trace["log_prob"], expected, atol=1e-4)


def test_the_learned_noise_stays_between_its_bounds_and_starts_in_the_middle():
    slot, features, state, _, trace = rollout("noise")
    _, std, _ = stated(slot, trace, features, state)
    assert (std - 0.12).abs().max() < 0.01
    with torch.no_grad():
        slot.models.actor.noise[-1].weight.mul_(1e6)
    _, std, _ = stated(slot, trace, features, state)
    assert ((std >= 0.08 - 1e-6) & (std <= 0.16 + 1e-6)).all()
    entropy = slot.models.actor.entropy(features, state, trace)
    assert torch.allclose(entropy, (0.5 * math.log(2 * math.pi * math.e) + std.log())[:, :3], atol=1e-5)


def test_a_trace_keeps_the_noise_level_it_was_made_with():
    slot, features, state, _, trace = rollout("sde")
    slot.models.actor.anneal(0.2)
    assert (slot.models.actor.log_prob(features, state, trace) - trace["log_prob"]).abs().max() < 1e-5
    _, later = slot.models.actor.act_with_trace(features, state, generators(*range(9)))
    assert later["noise_level"].tolist() == pytest.approx([0.2] * 9)
    mixed = join_traces([*split_trace(trace)[:4], *split_trace(later)[4:]])
    assert torch.allclose(slot.models.actor.log_prob(features, state, mixed), mixed["log_prob"], atol=1e-5)
    with pytest.raises(HeadConfigurationError, match=r"noise_level: 1\.5"):
        slot.models.actor.anneal(1.5)
