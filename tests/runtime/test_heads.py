"""Action heads: what they learn, what the chunk mask hides, and where their randomness comes from."""

import numpy as np
import pytest
import torch
from torch import nn

from gpu_runtime.models.errors import BatchMismatch, FeatureMismatch, NotFitted
from gpu_runtime.models.heads import chunks, flow
from gpu_runtime.models.heads.base import Head
from gpu_runtime.models.heads.dit import Block
from gpu_runtime.models.heads.features import Standardizer
from gpu_runtime.models.heads.registry import HEADS, build_head
from gpu_runtime.models.heads.whitening import Whitening
from gpu_runtime.protocol.specs import Gr00tHeadSpec
from tests.support.policies import SMALL_HEADS, WIDTH, Problem, make_spec, tap_width

EVERY_HEAD = sorted(SMALL_HEADS)


def inputs(problem: Problem, slot, samples: int = 8):
    """Features, state, actions and mask in model space."""
    features, batch = problem.batch(samples)
    state = slot.policy.model_state(batch.state_BS)
    return features, state, slot.policy.model_actions(batch.actions_BHA), torch.as_tensor(batch.mask_BH)


def loss_of(head: Head, features, state, actions, mask, seed: int = 1) -> torch.Tensor:
    return head.loss(features, state, actions, mask, torch.Generator().manual_seed(seed)).total


def test_every_registered_head_is_tried_here():
    assert set(HEADS) == set(SMALL_HEADS)


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_a_head_learns_more_than_half_of_the_loss_away(name: str):
    problem = Problem()
    slot = problem.slot(name, steps=80)
    losses = [slot.train_step(*problem.batch(16), f"p{i}")["loss"] for i in range(80)]
    assert np.mean(losses[-8:]) < 0.5 * losses[0]
    error = slot.evaluate(*problem.batch(64))
    assert error.mean < 0.6 * error.baseline_mean


@pytest.mark.parametrize("name", EVERY_HEAD)
@pytest.mark.parametrize("garbage", [1e6, float("nan"), float("inf")])
def test_what_lies_behind_the_chunk_mask_changes_neither_loss_nor_gradient(name: str, garbage: float):
    problem = Problem()
    slot = problem.slot(name)
    features, state, actions, mask = inputs(problem, slot)
    spoiled = torch.where(mask[..., None], actions, garbage)
    results = []
    for given in (actions, spoiled):
        slot.policy.head.zero_grad()
        loss = loss_of(slot.policy.head, features, state, given, mask)
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in slot.policy.head.parameters() if p.grad is not None)])
    assert torch.isfinite(results[1][0])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_the_mask_check_would_notice_a_loss_that_ignores_the_mask():
    problem = Problem()
    slot = problem.slot("mlp")
    features, state, actions, mask = inputs(problem, slot)
    spoiled = torch.where(mask[..., None], actions, 100.0)
    everything_valid = torch.ones_like(mask)
    assert loss_of(slot.policy.head, features, state, spoiled, everything_valid) > 2 * loss_of(
        slot.policy.head, features, state, spoiled, mask
    )


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_a_mask_of_ones_is_the_same_as_no_mask(name: str):
    problem = Problem()
    slot = problem.slot(name)
    features, state, actions, mask = inputs(problem, slot)
    with_mask = loss_of(slot.policy.head, features, state, actions, torch.ones_like(mask))
    assert torch.equal(with_mask, loss_of(slot.policy.head, features, state, actions, None))


def test_the_masked_mean_counts_valid_elements_only():
    error = torch.arange(12.0).view(2, 3, 2)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert float(chunks.masked_mean(error, mask)) == pytest.approx((0 + 1 + 2 + 3 + 6 + 7) / 6)


def test_a_chunk_without_a_valid_first_step_is_refused():
    with pytest.raises(BatchMismatch, match="first step"):
        chunks.full_mask(torch.zeros(1, 2, 3), torch.tensor([[False, True]]))


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_a_fresh_head_predicts_almost_nothing(name: str):
    problem = Problem()
    slot = problem.slot(name)
    features, state, actions, _ = inputs(problem, slot)
    head = slot.policy.head
    if name == "gr00t":  # what is near zero is the velocity: acting returns the noise it started from
        noise = torch.randn(actions.shape, generator=torch.Generator().manual_seed(5))
        assert (head.act(features, state, torch.Generator().manual_seed(5)) - noise).abs().max() < 0.05
    else:
        assert head.act(features, state, torch.Generator()).abs().max() < 0.05


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_the_process_wide_random_state_is_neither_read_nor_advanced(name: str):
    problem = Problem()
    slot = problem.slot(name)
    arguments = inputs(problem, slot)
    before = torch.get_rng_state()
    first = loss_of(slot.policy.head, *arguments)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(999)
    assert torch.equal(loss_of(slot.policy.head, *arguments), first)


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_weights_follow_from_the_seed_alone(name: str):
    def weights(noise_before: int) -> list[torch.Tensor]:
        torch.manual_seed(noise_before)
        generator = torch.Generator().manual_seed(11)
        head = build_head(make_spec(name).head, action_dim=3, state_dim=2, tap_width=tap_width, generator=generator)
        return list(head.parameters())

    assert all(torch.equal(a, b) for a, b in zip(weights(1), weights(2), strict=True))


@pytest.mark.parametrize("name", ["gr00t", "mlp"])
def test_another_generator_gives_another_loss(name: str):
    problem = Problem()
    slot = problem.slot(name)
    arguments = inputs(problem, slot)
    assert loss_of(slot.policy.head, *arguments, seed=1) != loss_of(slot.policy.head, *arguments, seed=2)


@pytest.mark.parametrize("name", EVERY_HEAD)
def test_a_head_refuses_to_run_before_it_is_fitted(name: str):
    problem = Problem()
    slot = problem.slot(name, fitted=False)
    assert slot.needs_fit
    with pytest.raises(NotFitted):
        slot.train_step(*problem.batch(4), "p0")


def test_a_head_names_the_tap_that_is_missing():
    problem = Problem()
    slot = problem.slot("mlp")
    _, batch = problem.batch(2)
    with pytest.raises(FeatureMismatch, match="vision"):
        slot.act([{"merged": torch.zeros(6, WIDTH)}] * 2, batch.state_BS, seed=0)


def test_a_missing_state_is_refused_by_name():
    problem = Problem()
    slot = problem.slot("gr00t")
    features, _ = problem.batch(2)
    with pytest.raises(BatchMismatch, match="state"):
        slot.act(features, None, seed=0)


# --- flow matching ----------------------------------------------------------------------------------------------


def test_time_reversed_openpi_convention_gives_the_same_points_and_euler_updates():
    generator = torch.Generator().manual_seed(0)
    noise, data = torch.randn(5, 4, 3, generator=generator), torch.randn(5, 4, 3, generator=generator)
    time = flow.sample_time(5, generator)
    openpi_time = (1 - time)[:, None, None]  # openpi: time 1 is noise, x_t = t noise + (1 - t) data, u = noise - data
    openpi_x, openpi_u = openpi_time * noise + (1 - openpi_time) * data, noise - data
    assert torch.allclose(flow.interpolate(noise, data, time), openpi_x, atol=1e-6)
    assert torch.equal(flow.velocity(noise, data), -openpi_u)
    step = flow.euler_step(openpi_x, flow.velocity(noise, data), 10)
    assert torch.allclose(step, openpi_x + (-1 / 10) * openpi_u, atol=1e-7)


def test_integrating_the_true_velocity_arrives_at_the_data():
    noise, data = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    x = noise
    for _ in range(4):
        x = flow.euler_step(x, flow.velocity(noise, data), 4)
    assert torch.allclose(x, data, atol=1e-5)


def test_times_lie_between_noise_and_data_and_favour_the_noisy_end():
    times = flow.sample_time(100_000, torch.Generator().manual_seed(0))
    assert 0 <= float(times.min()) <= float(times.max()) <= 1
    # u ~ Beta(1.5, 1) has mean 0.6, so t = 1 - u (nearly) has mean 0.4
    assert float(times.mean()) == pytest.approx(0.4, abs=0.005)
    assert float((times < 0.5).float().mean()) == pytest.approx(1 - 0.5**1.5, abs=0.01)


def test_euler_steps_are_told_the_bucket_of_their_time():
    assert flow.euler_buckets(4) == [0, 250, 500, 750]
    assert flow.bucket(torch.tensor([0.0, 0.2504, 1.0])).tolist() == [0, 250, 1000]


def test_noise_draws_multiply_inside_the_head_and_average():
    problem = Problem()
    slot = problem.slot("gr00t", noise_draws=4, dropout=0.0)
    features, state, actions, mask = inputs(problem, slot, samples=3)
    repeated = loss_of(slot.policy.head, features, state, actions, mask)
    slot.policy.head.noise_draws = 1
    by_hand = loss_of(
        slot.policy.head,
        [f for f in features for _ in range(4)],
        state.repeat_interleave(4, 0),
        actions.repeat_interleave(4, 0),
        mask.repeat_interleave(4, 0),
    )
    assert torch.allclose(repeated, by_hand, rtol=1e-5)


def test_a_longer_neighbour_does_not_change_a_samples_velocity():
    problem = Problem()
    slot = problem.slot("gr00t", tap="layer:-1", dropout=0.0)
    for _ in range(10):  # blocks start as the identity; only a trained one would show a leak
        slot.train_step(*problem.batch(8), "p")
    short, long = torch.randn(5, WIDTH), torch.randn(9, WIDTH)
    state = torch.randn(2, 2)
    together = slot.policy.head.act([{"layer:-1": short}, {"layer:-1": long}], state, torch.Generator().manual_seed(1))
    padded_with_noise = [{"layer:-1": torch.cat([short, torch.randn(4, WIDTH)])}, {"layer:-1": long}]
    leaked = slot.policy.head.act(padded_with_noise, state, torch.Generator().manual_seed(1))
    noise = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    alone = act_from(slot.policy.head, [{"layer:-1": short}], state[:1], noise[:1])
    assert torch.allclose(together[:1], alone, atol=1e-5)
    assert not torch.allclose(leaked[:1], alone, atol=1e-4)


def act_from(head, features, state, x):
    """Euler integration of this head's velocity from a given start."""
    condition = head._condition(features)
    for bucket in flow.euler_buckets(head.denoise_steps):
        times = torch.full((len(features),), float(bucket))
        x = flow.euler_step(x, head._velocity(x, times, state, condition, None), head.denoise_steps)
    return x


def test_a_width_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="width 100 must be a multiple"):
        Gr00tHeadSpec(width=100, heads=16)


def test_a_transformer_block_equals_attention_written_out_by_hand():
    torch.manual_seed(0)
    block = Block(width=8, heads=2, condition_width=6, dropout=0.0)
    x, time, condition = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = block(x, time, block.conditions([condition], [mask]), None)
    for sample in range(2):
        for draw in range(3):
            tokens, source = x[sample, draw], condition[sample][mask[sample]]
            scale, shift = block.modulation(time[sample, draw]).chunk(2)
            normed = nn.functional.layer_norm(tokens, (8,)) * (1 + scale) + shift
            heads = []
            for part in (slice(0, 4), slice(4, 8)):
                q, k, v = block.query(normed)[:, part], block.key(source)[:, part], block.value(source)[:, part]
                heads.append(torch.softmax(q @ k.T / 4**0.5, dim=-1) @ v)
            middle = tokens + block.out(torch.cat(heads, dim=-1))
            hidden = nn.functional.gelu(block.up(nn.functional.layer_norm(middle, (8,))), approximate="tanh")
            assert torch.allclose(found[sample, draw], middle + block.down(hidden), atol=1e-5)


def test_even_layers_attend_to_the_condition_and_odd_ones_to_themselves():
    head = Problem().slot("gr00t", layers=5).policy.head
    assert [block.condition_width for block in head.dit.blocks] == [WIDTH, None, WIDTH, None, WIDTH]


# --- feature statistics -----------------------------------------------------------------------------------------


def test_whitened_components_are_centred_uncorrelated_and_of_unit_variance():
    features, _ = Problem().batch(200)
    whitening = Whitening(WIDTH, 3)
    whitening.fit(features, "vision")
    x = whitening(features, "vision")
    assert torch.allclose(x.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(torch.cov(x.T), torch.eye(3), atol=1e-3)


def test_whitening_finds_the_subspace_that_numpy_finds():
    features, _ = Problem().batch(50)
    whitening = Whitening(WIDTH, 3)
    whitening.fit(features, "vision")
    grid = np.stack([f["vision"].numpy().ravel() for f in features]).astype(np.float64)
    _, spread, right = np.linalg.svd(grid - grid.mean(0), full_matrices=False)
    expected = right[:3].T / (spread[:3] / np.sqrt(49))
    found = whitening.projection_FP.numpy()
    signs = np.sign((expected * found).sum(0))
    assert np.allclose(found * signs, expected, rtol=1e-3, atol=1e-5)


def test_components_without_variance_stay_zero_instead_of_amplifying_rounding():
    features, _ = Problem().batch(50)  # three latent directions only
    whitening = Whitening(WIDTH, 20)
    whitening.fit(features, "vision")
    assert whitening.projection_FP[:, 3:].abs().max() == 0


def test_a_grid_of_another_size_than_fitted_is_refused():
    slot = Problem().slot("mlp")
    features, batch = Problem(tokens=5).batch(2)
    with pytest.raises(FeatureMismatch, match=r"5.*allowed: 6"):
        slot.act(features, batch.state_BS, seed=0)


def test_standardised_features_have_unit_spread_and_dead_ones_are_not_blown_up():
    features, _ = Problem().batch(300)
    grid = torch.stack([f["vision"] for f in features])
    grid[:, 0, 0] = 7 + 1e-6 * torch.randn(300)  # a dead feature
    rows = [{"vision": row} for row in grid]
    standardizer = Standardizer(WIDTH, per_token=True)
    standardizer.fit(rows, "vision")
    x = standardizer(grid)
    moving = x[:, 2:].std(0)
    assert float(x[:, 1:].mean().abs()) < 1e-4
    assert float(moving.median()) == pytest.approx(1, abs=0.05)
    assert x[:, 0, 0].abs().max() < 1e-3


def test_statistics_per_channel_fit_prompts_of_different_lengths():
    rows = [{"layer:-1": 5 + torch.randn(length, WIDTH)} for length in (4, 9, 6)]
    standardizer = Standardizer(WIDTH, per_token=False)
    standardizer.fit(rows, "layer:-1")
    assert standardizer.tokens == 1
    assert torch.allclose(standardizer.mean_TD[0], torch.cat([r["layer:-1"] for r in rows]).mean(0), atol=1e-5)


def test_no_head_holds_a_module_with_process_wide_dropout():
    for name in EVERY_HEAD:
        head = Problem().slot(name).policy.head
        assert not [m for m in head.modules() if isinstance(m, nn.Dropout)]
