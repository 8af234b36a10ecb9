"""What a training job gets: chunks, masks, upright resized views, and refusals that name both sides."""

from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.errors import SelectionMismatch
from gpu_runtime.data.images import fit_image
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.protocol.specs import DatasetSelection
from tests.support.lerobot_v21 import CAMERA, frame_image, states_and_actions


def selection(**fields: object) -> DatasetSelection:
    return DatasetSelection.model_validate({"id": "version", "image_size": 32, **fields})


@pytest.fixture(scope="module")
def dataset(pristine: dict[str, Path]) -> LeRobotDataset:
    return LeRobotDataset.open(pristine["v2.1"])


def test_a_chunk_holds_the_last_action_and_is_masked_past_the_episodes_end(dataset: LeRobotDataset) -> None:
    batch = SampleSource(dataset, selection(), horizon=4).batch([FrameRef(0, 3), FrameRef(1, 6)])
    states, actions = states_and_actions(8, 1)
    np.testing.assert_array_equal(batch.actions_BHA[1], actions[[6, 7, 7, 7]])
    np.testing.assert_array_equal(batch.mask_BH, [[True] * 4, [True, True, False, False]])
    assert batch.state_BS is not None
    np.testing.assert_array_equal(batch.state_BS[1], states[6])
    assert batch.instructions == ("push the cube", "pick the cube")
    assert batch.actions_BHA.dtype == np.float32
    assert batch.images[0].shape == (2, 32, 32, 3)


def test_views_are_turned_upright_before_they_are_resized(pristine: dict[str, Path]) -> None:
    quarter = LeRobotDataset.open(pristine["v2.1"], {"rotations": {CAMERA: 90}})
    image = SampleSource(quarter, selection(), horizon=1).batch([FrameRef(1, 2)]).images[0][0]
    expected = fit_image(np.rot90(frame_image(1, 2)), size=32)
    assert np.abs(image.astype(int) - expected).max() <= 6
    # The stored picture is brighter to the right; turned a quarter counter-clockwise, brighter to the top.
    assert image[0].mean() > image[-1].mean() + 20


def test_a_small_cache_gives_the_same_samples_and_stays_within_its_bytes(dataset: LeRobotDataset) -> None:
    refs = [FrameRef(2, 9), FrameRef(0, 1), FrameRef(2, 0), FrameRef(0, 1)]
    roomy, tight = (SampleSource(dataset, selection(), 2, cache_bytes=size) for size in (2**24, 2 * 32 * 32 * 3))
    np.testing.assert_array_equal(roomy.batch(refs).images[0], tight.batch(refs).images[0])
    assert tight._cache.bytes <= 2 * 32 * 32 * 3


def test_a_dataset_that_fits_the_cache_is_decoded_once(dataset: LeRobotDataset) -> None:
    source = SampleSource(dataset, selection(), 2, cache_bytes=2**24)
    every = [FrameRef(episode, frame) for episode, length in enumerate(dataset.lengths) for frame in range(length)]
    for _ in range(2):
        source.batch(every[::-1])
    assert source._cache.decoded == dataset.frame_count


def test_the_jobs_instruction_replaces_the_datasets(dataset: LeRobotDataset) -> None:
    assert SampleSource(dataset, selection(instruction="wave"), 1).batch([FrameRef(0, 0)]).instructions == ("wave",)


def test_without_state_the_batch_has_none(dataset: LeRobotDataset) -> None:
    assert SampleSource(dataset, selection(use_state=False), 1).batch([FrameRef(0, 0)]).state_BS is None


@pytest.mark.parametrize(
    ("fields", "horizon", "both_sides"),
    [
        ({"cameras": ["wrist"]}, 1, ["wrist", CAMERA]),
        ({"cameras": [CAMERA, CAMERA]}, 1, [CAMERA]),
        ({"cameras": [], "use_state": False}, 1, ["cameras is empty", "use_state false", CAMERA]),
        ({"action_dim": 7}, 1, ["7", "2 dimensions", "dx, dy"]),
        ({}, 13, ["13", "1 to 12"]),
    ],
)
def test_a_selection_that_does_not_match_is_refused_naming_both_sides(
    dataset: LeRobotDataset, fields: dict[str, object], horizon: int, both_sides: list[str]
) -> None:
    with pytest.raises(SelectionMismatch) as refused:
        SampleSource(dataset, selection(**fields), horizon)
    assert all(text in str(refused.value) for text in both_sides)


def test_a_frame_past_the_end_is_refused(dataset: LeRobotDataset) -> None:
    with pytest.raises(IndexError, match="frame 8 of episode 1"):
        SampleSource(dataset, selection(), 1).batch([FrameRef(1, 8)])
