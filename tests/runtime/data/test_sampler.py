"""Splits and batches: pure functions of seed and step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.data.sampler import FrameRef, FrameSampler, split_episodes


@given(count=st.integers(2, 300), fraction=st.floats(1e-3, 0.5), seed=st.integers(0, 2**31 - 1))
def test_a_split_covers_every_episode_once_and_leaves_no_side_empty(count: int, fraction: float, seed: int) -> None:
    split = split_episodes(count, fraction, seed)
    assert sorted(split.train + split.holdout) == list(range(count))
    assert split.train
    assert split.holdout
    assert split == split_episodes(count, fraction, seed)


def test_one_episode_or_a_fraction_of_zero_holds_nothing_out() -> None:
    assert split_episodes(1, 0.5, 0).holdout == ()
    assert split_episodes(9, 0.0, 0).holdout == ()


def test_different_seeds_hold_out_different_episodes() -> None:
    assert len({split_episodes(50, 0.1, seed).holdout for seed in range(20)}) > 15


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    batch_size=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_each_epoch_draws_every_frame_once(lengths: list[int], batch_size: int, seed: int) -> None:
    total = sum(lengths)
    sampler = FrameSampler(lengths, range(len(lengths)), batch_size, seed)
    drawn = [ref for step in range(3 * total // batch_size + 1) for ref in sampler.batch(step)]
    every = {FrameRef(episode, frame) for episode, length in enumerate(lengths) for frame in range(length)}
    assert set(drawn[:total]) == every
    assert set(drawn[total : 2 * total]) == every


def test_a_resumed_sampler_continues_with_the_same_batches() -> None:
    original = FrameSampler((30, 20, 10), (0, 2), 7, seed=3)
    batches = [original.batch(step) for step in range(20)]
    resumed = FrameSampler((30, 20, 10), (0, 2), 7, seed=3)
    assert [resumed.batch(step) for step in range(11, 20)] == batches[11:]
    assert {ref.episode for batch in batches for ref in batch} == {0, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(((0,), (0,), 1, 0), "no frames"), (((3,), (0,), 0, 0), "batch_size is 0"), (((3,), (), 1, 0), "no frames")],
)
def test_nothing_to_sample_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FrameSampler(*arguments)
