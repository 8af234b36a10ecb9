"""Reading LeRobot datasets: vectors, and frames exactly at their timestamps."""

from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.validation import validate_dataset
from tests.support.lerobot_v21 import CAMERA, frame_image, states_and_actions, write_v21
from tests.support.lerobot_v30 import SCHEMA, split_files, store_images, write_v30

CODEC_LEVELS = 12  # largest error of a channel that the lossy test codecs make on the test pictures


def assert_shows(image: np.ndarray, episode: int, frame: int) -> None:
    """Neighbouring frames differ by 12 levels in green over the whole picture, so the mean tells which one it is."""
    expected = frame_image(episode, frame).astype(float)
    assert image.shape == expected.shape
    assert np.abs(image.mean(axis=(0, 1)) - expected.mean(axis=(0, 1))).max() < 5
    assert np.abs(image - expected).max() <= CODEC_LEVELS


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_vectors_are_in_episode_order_and_exact(pristine: dict[str, Path], version: str) -> None:
    dataset = LeRobotDataset.open(pristine[version])
    assert dataset.lengths == (12, 8, 10)
    expected = [states_and_actions(length, episode) for episode, length in enumerate(dataset.lengths)]
    np.testing.assert_array_equal(dataset.states_NS(), np.concatenate([states for states, _ in expected]))
    np.testing.assert_array_equal(dataset.actions_NA(), np.concatenate([actions for _, actions in expected]))
    assert dataset.instruction(1, 3) == "pick the cube"


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_every_frame_is_the_one_recorded_at_its_time(pristine: dict[str, Path], version: str) -> None:
    dataset = LeRobotDataset.open(pristine[version])
    for episode, length in enumerate(dataset.lengths):
        for frame, image in enumerate(dataset.frames(episode, range(length), CAMERA)):
            assert_shows(image, episode, frame)


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_frames_come_in_the_order_asked_and_repeat(pristine: dict[str, Path], version: str) -> None:
    images = LeRobotDataset.open(pristine[version]).frames(2, [9, 0, 9, 4], CAMERA)
    for image, frame in zip(images, [9, 0, 9, 4], strict=True):
        assert_shows(image, 2, frame)


@pytest.mark.parametrize(("codec", "bframes"), [("libsvtav1", 0), ("libx264", 3)])
def test_seeking_equals_sequential_decoding_for_av1_and_for_reordered_h264(
    tmp_path: Path, codec: str, bframes: int
) -> None:
    dataset = LeRobotDataset.open(write_v21(tmp_path / "d", lengths=(19, 5), codec=codec, bframes=bframes))
    sequential = dataset.frames(0, range(19), CAMERA)
    assert_shows(sequential[7], 0, 7)
    for frame in (18, 1, 13, 12, 11, 0):
        np.testing.assert_array_equal(dataset.frames(0, [frame], CAMERA)[0], sequential[frame])


def test_images_stored_as_png_cells_are_read_exactly(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "d", lengths=(40, 35), images_as="image")
    report = validate_dataset(root)
    assert report.ok, report.defects
    dataset = LeRobotDataset.open(root)
    np.testing.assert_array_equal(dataset.frames(1, [34, 3], CAMERA)[0], frame_image(1, 34))


def test_a_recorders_declaration_gives_back_its_schema(pristine: dict[str, Path]) -> None:
    assert LeRobotDataset.open(pristine["v3.0"]).schema == SCHEMA


def test_a_declaration_of_the_importer_wins_over_the_datasets_own(pristine: dict[str, Path]) -> None:
    schema = LeRobotDataset.open(pristine["v3.0"], {"rotations": {}, "control_hz": 5}).schema
    assert (schema.cameras[0].rotation_deg, schema.control_hz) == (0, 5)
    assert schema.gripper == SCHEMA.gripper


def test_a_frame_that_is_not_there_is_refused(pristine: dict[str, Path]) -> None:
    dataset = LeRobotDataset.open(pristine["v2.1"])
    with pytest.raises(IndexError, match="episode 1, which has 8"):
        dataset.frames(1, [8], CAMERA)
    with pytest.raises(DatasetError, match="no camera 'left'"):
        dataset.frames(1, [0], "left")


def test_many_episodes_of_v30_share_files_and_are_still_told_apart(tmp_path: Path) -> None:
    dataset = LeRobotDataset.open(write_v30(tmp_path / "d", lengths=(3, 4, 2, 6, 5)))
    assert len({episode.data_file for episode in dataset.episodes}) == 1
    assert dataset.episodes[4].row_start == 15
    assert_shows(dataset.frames(4, [4], CAMERA)[0], 4, 4)


@pytest.mark.parametrize("images_as", ["video", "image"])
def test_v30_episodes_in_later_files_start_again_at_row_and_second_zero(v30: Path, images_as: str) -> None:
    split_files(v30)
    if images_as == "image":
        store_images(v30)
    report = validate_dataset(v30)
    assert not [defect for defect in report.defects if defect.code != "file_unused"], report.defects
    dataset = LeRobotDataset.open(v30)
    np.testing.assert_array_equal(dataset.actions_NA()[dataset.rows(2)], states_and_actions(10, 2)[1])
    for episode, frame in ((0, 11), (1, 0), (1, 7), (2, 0), (2, 9)):
        assert_shows(dataset.frames(episode, [frame], CAMERA)[0], episode, frame)


@pytest.mark.recording
def test_the_real_recording_is_read_and_valid(recording: Path) -> None:
    report = validate_dataset(recording)
    assert report.ok, report.defects
    assert report.summary is not None
    assert (report.summary.episodes, report.summary.frames) == (6, 1583)
    assert report.summary.schema_.action.names[0] == "kLeftShoulderPitch"
    dataset = LeRobotDataset.open(recording)
    image = dataset.frames(5, [277], "observation.images.cam_high")[0]
    assert image.shape == (480, 640, 3)
    assert 10 < image.mean() < 245
