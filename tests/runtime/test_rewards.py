"""Rewards that training sees, against a slow reference written from the specification's words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runtime.protocol.environment_spec import RewardSpec
from gpu_runtime.workflows.reward import NoStepLimit, shaped_rewards

CHUNK, MAX_STEPS = 4, 40
amounts = st.floats(0, 3, allow_nan=False, width=32)
specs = st.builds(
    RewardSpec,
    dense=st.sampled_from(["none", "raw", "difference"]),
    success=amounts,
    early_success=amounts,
    per_chunk=st.floats(-2, 0, allow_nan=False, width=32),
)
rewards = st.floats(-5, 5, allow_nan=False, width=32)
episodes = st.lists(st.lists(rewards, min_size=CHUNK, max_size=CHUNK), min_size=1, max_size=6)


def reference(spec: RewardSpec, steps: list[float], starts: set[int], success_step: int) -> list[float]:
    """Step by step; ``starts``: steps at which a decision was taken."""
    paid = []
    for t, raw in enumerate(steps):
        amount = 0.0
        if spec.dense == "raw":
            amount = raw
        if spec.dense == "difference" and t > 0:
            amount = raw - steps[t - 1]
        if success_step and t == success_step - 1:
            amount += spec.success + spec.early_success * (1 - success_step / MAX_STEPS)
        if t in starts:
            amount += spec.per_chunk
        paid.append(amount)
    return paid


@settings(max_examples=200, deadline=None)
@given(spec=specs, chunks=episodes, cut=st.integers(0, CHUNK - 1), data=st.data())
def test_shaped_rewards_are_those_of_the_reference(
    spec: RewardSpec, chunks: list[list[float]], cut: int, data: st.DataObject
) -> None:
    chunks[-1] = chunks[-1][: CHUNK - cut]  # an episode may end inside its last chunk
    steps = [reward for chunk in chunks for reward in chunk]
    success_step = data.draw(st.integers(0, len(steps)))
    found = shaped_rewards(
        spec,
        [np.array(chunk, np.float32) for chunk in chunks],
        chunk=CHUNK,
        success_step=success_step,
        max_steps=MAX_STEPS,
    )
    assert [part.shape for part in found] == [(CHUNK,)] * len(chunks)
    assert all(part.dtype == np.float32 for part in found)
    flat = np.concatenate(found)
    expected = reference(spec, steps, set(range(0, len(steps), CHUNK)), success_step)
    np.testing.assert_allclose(flat[: len(steps)], expected, atol=1e-4)
    assert not flat[len(steps) :].any(), "nothing is paid behind the end"


def test_differences_add_up_to_what_was_gained_however_the_episode_is_cut_into_chunks() -> None:
    raw = np.array([0.1, 0.4, 0.2, 0.9, 1.0], np.float32)
    spec = RewardSpec(success=0.0)
    for parts in ([raw], [raw[:2], raw[2:4], raw[4:]], [raw[:1], raw[1:]]):
        found = shaped_rewards(spec, parts, chunk=5, success_step=0, max_steps=None)
        assert sum(part.sum() for part in found) == pytest.approx(0.9)


def test_the_price_of_speed_needs_a_step_limit() -> None:
    spec = RewardSpec(early_success=0.5)
    parts = [np.zeros(2, np.float32)]
    assert shaped_rewards(spec, parts, chunk=2, success_step=0, max_steps=None)[0].sum() == 0
    with pytest.raises(NoStepLimit, match="set environment"):
        shaped_rewards(spec, parts, chunk=2, success_step=1, max_steps=None)


def test_what_came_in_is_left_as_it_was() -> None:
    raw = np.array([0.5, 0.7], np.float32)
    shaped_rewards(RewardSpec(dense="raw", per_chunk=-1.0), [raw], chunk=2, success_step=1, max_steps=4)
    assert raw.tolist() == [np.float32(0.5), np.float32(0.7)]
