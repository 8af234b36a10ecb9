"""One episode as an MP4 that browsers play: every frame in its place, copied where that is possible."""

from pathlib import Path

import av
import numpy as np
import pytest

from gpu_runtime.data.episode_video import write_episode_video
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.lerobot import LeRobotDataset
from tests.support.lerobot_v21 import CAMERA, FPS, VIDEO, frame_image, write_v21
from tests.support.lerobot_v30 import store_images, write_v30

ROOM = 2**24


def video_of(dataset: LeRobotDataset, episode: int, to: Path, max_bytes: int = ROOM) -> Path:
    write_episode_video(dataset, episode, camera=CAMERA, to=to, max_bytes=max_bytes)
    return to


def frames_of(path: Path) -> tuple[list[float], list[np.ndarray]]:
    """(when each frame is shown, what it shows), as a player decodes it."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        frames = list(container.decode(stream))
    return [float(frame.time) for frame in frames], [frame.to_ndarray(format="rgb24") for frame in frames]


def assert_is_episode(path: Path, episode: int, length: int, turned: int = 0) -> None:
    times_s, images = frames_of(path)
    np.testing.assert_allclose(times_s, np.arange(length) / FPS, atol=1e-3)
    for number, image in enumerate(images):
        wanted = np.rot90(frame_image(episode, number), k=turned)
        assert image.shape == wanted.shape
        others = [np.rot90(frame_image(episode, other), k=turned) for other in range(length)]
        distances = [np.abs(image.astype(float) - other).mean() for other in others]
        assert int(np.argmin(distances)) == number
        assert distances[number] < 16


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
@pytest.mark.parametrize(("episode", "length"), [(0, 12), (1, 8), (2, 10)])
def test_each_frame_is_shown_at_its_time(pristine: dict[str, Path], tmp_path: Path, version, episode, length):
    turned = 2 if version == "v3.0" else 0  # declared by that one
    dataset = LeRobotDataset.open(pristine[version])
    assert_is_episode(video_of(dataset, episode, tmp_path / "e.mp4"), episode, length, turned)


def test_h264_that_begins_with_a_key_frame_is_copied_bit_for_bit(v21: Path, tmp_path: Path):
    copied = video_of(LeRobotDataset.open(v21), 1, tmp_path / "e.mp4")
    with av.open(str(copied)) as one, av.open(str(v21 / VIDEO.format(1))) as other:
        assert [bytes(p) for p in one.demux(video=0) if p.size] == [bytes(p) for p in other.demux(video=0) if p.size]


@pytest.mark.parametrize("odd_length", [7, 9])
def test_an_episode_that_begins_between_key_frames_of_a_shared_file_is_encoded(tmp_path: Path, odd_length: int):
    path = write_v30(tmp_path / "v30", lengths=(odd_length, 8))
    assert_is_episode(video_of(LeRobotDataset.open(path), 1, tmp_path / "e.mp4"), 1, 8, 2)


@pytest.mark.parametrize(("codec", "bframes"), [("libsvtav1", 0), ("libx264", 3)])
def test_what_browsers_do_not_play_alike_is_encoded(tmp_path: Path, codec: str, bframes: int):
    path = write_v21(tmp_path / "other", codec=codec, bframes=bframes)
    assert_is_episode(video_of(LeRobotDataset.open(path), 0, tmp_path / "e.mp4"), 0, 12)


def test_stored_images_become_a_video(v30: Path, tmp_path: Path):
    store_images(v30)
    assert_is_episode(video_of(LeRobotDataset.open(v30), 2, tmp_path / "e.mp4"), 2, 10, 2)


def test_it_is_turned_upright_as_declared(pristine: dict[str, Path], tmp_path: Path):
    dataset = LeRobotDataset.open(pristine["v2.1"], {"rotations": {CAMERA: 90}})
    assert_is_episode(video_of(dataset, 1, tmp_path / "e.mp4"), 1, 8, 1)


def test_more_bytes_than_allowed_are_refused(pristine: dict[str, Path], tmp_path: Path):
    with pytest.raises(DatasetError, match="more than 100 bytes"):
        video_of(LeRobotDataset.open(pristine["v2.1"]), 0, tmp_path / "e.mp4", max_bytes=100)


@pytest.mark.parametrize(("episode", "camera", "code"), [(3, CAMERA, "episode_missing"), (0, "x", "camera_missing")])
def test_what_is_not_there_is_told(pristine: dict[str, Path], tmp_path: Path, episode, camera, code):
    dataset = LeRobotDataset.open(pristine["v2.1"])
    with pytest.raises(DatasetError) as told:
        write_episode_video(dataset, episode, camera=camera, to=tmp_path / "e.mp4", max_bytes=ROOM)
    assert told.value.code == code


@pytest.mark.recording
def test_a_recording_in_av1_is_encoded_frame_by_frame(recording: Path, tmp_path: Path):
    dataset = LeRobotDataset.open(recording)
    camera = dataset.schema.cameras[0].key
    write_episode_video(dataset, 0, camera=camera, to=tmp_path / "e.mp4", max_bytes=ROOM)
    times_s, images = frames_of(tmp_path / "e.mp4")
    assert len(times_s) == dataset.lengths[0]
    np.testing.assert_allclose(times_s, np.arange(len(times_s)) / dataset.info.fps, atol=1e-3)
    for number in (0, 97, len(images) - 1):
        (stored,) = dataset.frames(0, [number], camera)
        assert np.abs(images[number].astype(float) - stored).mean() < 6
