"""The recorder's files, read back with pyarrow, PyAV and json directly, and everything it refuses."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

from gpu_runtime.data.recorder import Recorder
from gpu_runtime.data.recording import checks
from gpu_runtime.data.recording.series import DataSeries, VideoSeries
from gpu_runtime.protocol.schema import (
    ActionRepresentation,
    Camera,
    DatasetSchema,
    Gripper,
    GripperConvention,
    VectorFeature,
)

FPS = 20
BASE, WRIST = "observation.images.base", "observation.images.wrist"
STATISTICS = {"min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"}


def schema_of(*cameras: str, state: bool = True) -> DatasetSchema:
    return DatasetSchema(
        cameras=tuple(Camera(key=key, height=32, width=48) for key in cameras),
        state=VectorFeature(key="observation.state", names=("x", "y", "z")) if state else None,
        action=VectorFeature(key="action", names=("dx", "gripper")),
        representation=ActionRepresentation.DELTA_EE_SCALED,
        gripper=Gripper(index=1, convention=GripperConvention.OPEN_POSITIVE),
        control_hz=FPS,
        robot_type="panda",
    )


class Made:
    """A recording and what went into it."""

    def __init__(self, root: Path, lengths: tuple[int, ...] = (3, 5, 2)) -> None:
        rng = np.random.default_rng(0)
        self.schema, self.lengths, self.path = schema_of(BASE, WRIST), lengths, root / "made"
        self.states = [rng.normal(size=(n, 3)).astype(np.float32) for n in lengths]
        self.actions = [rng.uniform(-1, 1, size=(n, 2)).astype(np.float32) for n in lengths]
        # colour constant over 2x2 pixels: chroma at half resolution then loses nothing but rounding
        small = [rng.integers(0, 256, (n, 2, 16, 24, 3), dtype=np.uint8) for n in lengths]
        self.images = [views.repeat(2, axis=2).repeat(2, axis=3) for views in small]
        with Recorder(self.path, self.schema, FPS, description={"environment": "made up"}) as recorder:
            for episode, count in enumerate(lengths):
                recorder.start_episode("lift" if episode == 1 else "push")
                for frame in range(count):
                    views = dict(zip((BASE, WRIST), self.images[episode][frame], strict=True))
                    recorder.add(views, self.states[episode][frame], self.actions[episode][frame])

    def json(self, name: str) -> dict:
        return json.loads((self.path / "meta" / name).read_text())

    def episodes(self) -> list[dict]:
        return pq.read_table(self.path / "meta/episodes/chunk-000/file-000.parquet").to_pylist()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("recorder"))


def decoded(path: Path) -> tuple[np.ndarray, list[float], av.VideoStream]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [
            (float(frame.pts * frame.time_base), frame.to_ndarray(format="rgb24"))
            for frame in container.decode(stream)
        ]
        return np.stack([image for _, image in frames]), [second for second, _ in frames], stream


def test_info_counts_and_describes_every_feature(made: Made) -> None:
    info = made.json("info.json")
    assert info["codebase_version"] == "v3.0"
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"], info["fps"]) == (3, 10, 2, FPS)
    assert info["splits"] == {"train": "0:3"}
    assert info["features"][BASE]["shape"] == [32, 48, 3]
    assert info["features"]["observation.state"]["names"] == ["x", "y", "z"]
    assert set(info["features"]) == {
        BASE, WRIST, "observation.state", "action", "timestamp", "frame_index", "episode_index", "index", "task_index",
    }  # fmt: skip


def test_rows_hold_exactly_what_was_recorded(made: Made) -> None:
    table = pq.read_table(made.path / "data/chunk-000/file-000.parquet")
    states = np.array(table.column("observation.state").to_pylist(), np.float32)
    actions = np.array(table.column("action").to_pylist(), np.float32)
    assert np.array_equal(states, np.concatenate(made.states))
    assert np.array_equal(actions, np.concatenate(made.actions))
    assert table.column("index").to_pylist() == list(range(10))
    assert table.column("frame_index").to_pylist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1]
    assert table.column("episode_index").to_pylist() == [0] * 3 + [1] * 5 + [2] * 2
    assert table.column("task_index").to_pylist() == [0] * 3 + [1] * 5 + [0] * 2
    stamps = np.array(table.column("timestamp").to_pylist(), np.float32)
    assert np.array_equal(stamps, (np.array(table.column("frame_index").to_pylist()) / FPS).astype(np.float32))


def test_tasks_are_indexed_by_their_text(made: Made) -> None:
    tasks = pq.read_table(made.path / "meta/tasks.parquet")
    assert tasks.column("task_index").to_pylist() == [0, 1]
    assert tasks.column("__index_level_0__").to_pylist() == ["push", "lift"]
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["__index_level_0__"]


def test_episode_rows_place_each_episode_in_rows_and_video(made: Made) -> None:
    first = 0
    for row, length in zip(made.episodes(), made.lengths, strict=True):
        assert (row["length"], row["dataset_from_index"], row["dataset_to_index"]) == (length, first, first + length)
        for key in (BASE, WRIST):
            assert row[f"videos/{key}/from_timestamp"] == first / FPS
            assert row[f"videos/{key}/to_timestamp"] == (first + length) / FPS
        first += length
    assert [row["tasks"] for row in made.episodes()] == [["push"], ["lift"], ["push"]]


def test_every_feature_has_every_statistic_overall_and_per_episode(made: Made) -> None:
    statistics = made.json("stats.json")
    features = set(made.json("info.json")["features"])
    assert set(statistics) == features
    assert all(set(summary) == STATISTICS for summary in statistics.values())
    columns = {name for name in made.episodes()[0] if name.startswith("stats/")}
    assert columns == {f"stats/{feature}/{name}" for feature in features for name in STATISTICS}


def test_statistics_equal_numpy_on_all_values(made: Made) -> None:
    statistics = made.json("stats.json")
    states = np.concatenate(made.states).astype(np.float64)
    pixels = np.concatenate(made.images)[:, 0].reshape(-1, 3) / 255.0
    for summary, values, shape in (
        (statistics["observation.state"], states, (3,)),
        (statistics[BASE], pixels, (3, 1, 1)),
    ):
        for name, wanted in {
            "min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0),
            "q01": np.quantile(values, 0.01, axis=0), "q50": np.quantile(values, 0.5, axis=0),
            "q90": np.quantile(values, 0.9, axis=0), "q99": np.quantile(values, 0.99, axis=0),
        }.items():  # fmt: skip
            assert np.array(summary[name]).shape == shape
            np.testing.assert_allclose(np.array(summary[name]).ravel(), wanted, rtol=0, atol=1e-6, err_msg=name)
        assert summary["count"] == [10]


def test_video_is_browser_playable_and_seekable(made: Made) -> None:
    path = made.path / f"videos/{BASE}/chunk-000/file-000.mp4"
    _, seconds, stream = decoded(path)
    assert stream.codec_context.name == "h264"
    assert stream.codec_context.profile == "High"
    assert stream.codec_context.pix_fmt == "yuv420p"
    assert seconds == [pytest.approx(frame / FPS, abs=1e-9) for frame in range(10)]
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    with av.open(str(path)) as container:
        keys = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
    assert all(any(pair) for pair in itertools.pairwise(keys))


def test_decoded_frames_are_close_to_what_was_recorded(made: Made) -> None:
    for view, key in enumerate((BASE, WRIST)):
        images, _, _ = decoded(made.path / f"videos/{key}/chunk-000/file-000.mp4")
        error = np.abs(images.astype(int) - np.concatenate(made.images)[:, view].astype(int))
        assert error.max() <= 6  # of 255 levels, on random blocks
        assert error.mean() <= 1.5


def test_luma_survives_even_where_colour_is_smeared(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (6, 32, 48, 3), dtype=np.uint8)
    with Recorder(tmp_path / "noise", schema_of(BASE), FPS) as recorder:
        recorder.start_episode("look at noise")
        for image in noise:
            recorder.add({BASE: image}, np.zeros(3, np.float32), np.zeros(2, np.float32))
    with av.open(str(tmp_path / "noise" / f"videos/{BASE}/chunk-000/file-000.mp4")) as container:
        luma = np.stack([frame.to_ndarray()[:32] for frame in container.decode(video=0)])
    wanted = 16 + noise @ np.array([0.299, 0.587, 0.114]) * 219 / 255
    assert np.abs(luma - wanted).max() <= 4


def test_a_schema_without_cameras_or_state_is_recorded_without_them(tmp_path: Path) -> None:
    with Recorder(tmp_path / "blind", schema_of(state=False), FPS) as recorder:
        recorder.start_episode("wave")
        recorder.add({}, None, np.ones(2, np.float32))
    info = json.loads((tmp_path / "blind/meta/info.json").read_text())
    assert info["video_path"] is None
    assert "observation.state" not in info["features"]


def test_a_series_rolls_over_between_episodes(tmp_path: Path) -> None:
    table = pq.read_table(Made(tmp_path).path / "data/chunk-000/file-000.parquet")
    data = DataSeries(tmp_path / "rows", bytes_max=1)
    assert [data.add_episode(table)["data/file_index"] for _ in range(3)] == [0, 1, 2]
    data.close()
    assert pq.read_table(tmp_path / "rows/data/chunk-000/file-002.parquet").equals(table)
    video = VideoSeries(tmp_path / "views", Camera(key="v", height=32, width=48), FPS, bytes_max=0)
    places = []
    for _ in range(2):
        video.begin_episode()
        video.file.add(np.zeros((32, 48, 3), np.uint8))
        places.append((video.columns()["videos/v/file_index"], video.columns()["videos/v/from_timestamp"]))
    video.file.close()
    assert places == [(0, 0.0), (1, 0.0)]
    assert len(decoded(tmp_path / "views/videos/v/chunk-000/file-001.mp4")[0]) == 1


STATE, ACTION, IMAGE = np.zeros(3, np.float32), np.zeros(2, np.float32), np.zeros((32, 48, 3), np.uint8)


@pytest.mark.parametrize(
    ("images", "state", "action", "error", "words"),
    [
        ({}, STATE, ACTION, checks.WrongCameras, BASE),
        ({BASE: IMAGE, WRIST: IMAGE}, STATE, ACTION, checks.WrongCameras, WRIST),
        ({BASE: IMAGE.transpose(2, 0, 1)}, STATE, ACTION, checks.WrongShape, r"\(3, 32, 48\).*\(32, 48, 3\)"),
        ({BASE: IMAGE.astype(np.float32)}, STATE, ACTION, checks.WrongType, "array of float32.*uint8"),
        ({BASE: IMAGE.tolist()}, STATE, ACTION, checks.WrongType, "a list"),
        ({BASE: IMAGE}, STATE[:2], ACTION, checks.WrongShape, r"observation.state has shape \(2,\)"),
        ({BASE: IMAGE}, STATE.astype(np.float64), ACTION, checks.WrongType, "observation.state.*float64"),
        ({BASE: IMAGE}, None, ACTION, checks.WrongType, "observation.state is a NoneType"),
        ({BASE: IMAGE}, STATE, np.zeros(3, np.float32), checks.WrongShape, r"action has shape \(3,\)"),
        ({BASE: IMAGE}, STATE, np.array([0, np.nan], np.float32), checks.NotFinite, "'gripper' is nan"),
        ({BASE: IMAGE}, np.array([0, np.inf, 0], np.float32), ACTION, checks.NotFinite, "'y' is inf"),
    ],
)
def test_a_wrong_frame_is_refused_by_name_and_leaves_the_recording_whole(
    tmp_path: Path, images: dict, state: np.ndarray, action: np.ndarray, error: type, words: str
) -> None:
    with Recorder(tmp_path / "out", schema_of(BASE), FPS) as recorder:
        recorder.start_episode("push")
        recorder.add({BASE: IMAGE}, STATE, ACTION)
        with pytest.raises(error, match=words):
            recorder.add(images, state, action)
        recorder.add({BASE: IMAGE}, STATE, ACTION)
    assert json.loads((tmp_path / "out/meta/info.json").read_text())["total_frames"] == 2
    assert len(decoded(tmp_path / f"out/videos/{BASE}/chunk-000/file-000.mp4")[0]) == 2


def test_a_reset_closes_the_episode_and_an_empty_one_is_an_error(tmp_path: Path) -> None:
    with Recorder(tmp_path / "out", schema_of(BASE), FPS) as recorder:
        recorder.start_episode("push")
        recorder.add({BASE: IMAGE}, STATE, ACTION)
        recorder.start_episode("push")
        assert recorder.episodes == 1
        with pytest.raises(checks.EmptyEpisode, match="episode 1 has no frame"):
            recorder.start_episode("push")
        recorder.add({BASE: IMAGE}, STATE, ACTION)
    assert json.loads((tmp_path / "out/meta/info.json").read_text())["total_episodes"] == 2


def test_an_empty_recording_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(checks.EmptyRecording), Recorder(tmp_path / "out", schema_of(BASE), FPS):
        pass
    with pytest.raises(checks.EmptyEpisode), Recorder(tmp_path / "out", schema_of(BASE), FPS) as recorder:
        recorder.start_episode("push")
    assert list(tmp_path.iterdir()) == []


def test_calls_out_of_order_are_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "out", schema_of(BASE), FPS)
    with pytest.raises(checks.NoOpenEpisode, match="add"):
        recorder.add({BASE: IMAGE}, STATE, ACTION)
    with pytest.raises(checks.NoOpenEpisode, match="end_episode"):
        recorder.end_episode()
    with pytest.raises(checks.UnnamedTask):
        recorder.start_episode("  ")
    recorder.start_episode("push")
    recorder.add({BASE: IMAGE}, STATE, ACTION)
    recorder.close()
    with pytest.raises(checks.RecordingClosed):
        recorder.start_episode("push")


def test_an_interrupted_recording_leaves_nothing_and_nothing_half_written_is_visible(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Recorder(tmp_path / "out", schema_of(BASE), FPS) as recorder:
            recorder.start_episode("push")
            recorder.add({BASE: IMAGE}, STATE, ACTION)
            recorder.end_episode()
            assert not (tmp_path / "out").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_recording_left_is_removed_by_the_next_one_and_a_living_one_is_not(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from gpu_runtime.data.recording.workspace import open_workspace;"
        "open_workspace(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")]).returncode == -9
    (dead,) = tmp_path.iterdir()
    first = Recorder(tmp_path / "out", schema_of(BASE), FPS)
    (living,) = tmp_path.iterdir()
    assert living != dead
    second = Recorder(tmp_path / "out", schema_of(BASE), FPS)
    assert living.exists()
    for recorder in (first, second):
        recorder.abort()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(checks.PathTaken, match="never overwrites"):
        Recorder(tmp_path / "out", schema_of(BASE), FPS)
    with pytest.raises(checks.PathTaken, match="does not exist"):
        Recorder(tmp_path / "no" / "out", schema_of(BASE), FPS)


@pytest.mark.parametrize(
    ("schema", "fps", "words"),
    [
        (schema_of(BASE), 0, "fps is 0"),
        (schema_of(BASE), 12.5, "fps is 12.5"),
        (schema_of(BASE, BASE), FPS, "repeated"),
        (schema_of("timestamp"), FPS, "reserved"),
        (schema_of("a/b"), FPS, "slash"),
        (
            schema_of(BASE).model_copy(update={"cameras": (Camera(key=BASE, height=31, width=48),)}),
            FPS,
            "31x48.*even",
        ),
        (
            schema_of(BASE).model_copy(update={"action": VectorFeature(key="action", names=("x", "x"))}),
            FPS,
            "its own name",
        ),
    ],
)
def test_a_schema_that_the_format_cannot_hold_is_refused(
    tmp_path: Path, schema: DatasetSchema, fps: int, words: str
) -> None:
    with pytest.raises(checks.UnrecordableSchema, match=words):
        Recorder(tmp_path / "out", schema, fps)
    assert list(tmp_path.iterdir()) == []
