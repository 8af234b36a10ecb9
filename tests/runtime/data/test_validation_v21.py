"""Planted defects of LeRobot v2.1 datasets: each is found under its code, with its place."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_runtime.data.validation import validate_dataset, views
from tests.support.lerobot_v21 import (
    CAMERA,
    DATA,
    FPS,
    VIDEO,
    edit_json,
    edit_lines,
    edit_table,
    frame_image,
    write_v21,
    write_video,
)

STATE = "observation.state"
INFO, EPISODES, STATS = "meta/info.json", "meta/episodes.jsonl", "meta/episodes_stats.jsonl"


@dataclass(frozen=True)
class Planted:
    """One way to break a valid dataset, and the finding that must name it."""

    name: str
    plant: Callable[[Path], Any]
    code: str
    place: dict[str, Any] = field(default_factory=dict)
    severity: str = "error"
    says: str = ""


def set_info(**values: Any) -> Callable[[Path], Any]:
    return lambda root: edit_json(root / INFO, lambda info: info.update(values))


def set_feature(key: str, **values: Any) -> Callable[[Path], Any]:
    return lambda root: edit_json(root / INFO, lambda info: info["features"][key].update(values))


def set_episode(index: int, **values: Any) -> Callable[[Path], Any]:
    return lambda root: edit_lines(root / EPISODES, lambda rows: rows[index].update(values))


def set_stat(feature: str, name: str, value: Any, episode: int = 1) -> Callable[[Path], Any]:
    return lambda root: edit_lines(root / STATS, lambda rows: rows[episode]["stats"][feature].update({name: value}))


def set_cell(column: str, row: int, value: Any, episode: int = 1) -> Callable[[Path], Any]:
    def change(columns: dict[str, Any]) -> None:
        columns[column][row] = value

    return lambda root: edit_table(root / DATA.format(episode), change)


def set_column(column: str, values: list[Any], episode: int = 1) -> Callable[[Path], Any]:
    return lambda root: edit_table(root / DATA.format(episode), lambda columns: columns.update({column: values}))


def cut(file: str, keep: float) -> Callable[[Path], Any]:
    return lambda root: os.truncate(root / file, int((root / file).stat().st_size * keep))


def damage(file: str) -> Callable[[Path], Any]:
    """Overwrite the second half of the media data with noise; the index at the front of the file stays good."""

    def plant(root: Path) -> None:
        content = bytearray((root / file).read_bytes())
        start = (content.index(b"mdat") + len(content)) // 2
        content[start:] = np.random.default_rng(0).bytes(len(content) - start)
        (root / file).write_bytes(content)

    return plant


def video_of(
    length: int, episode: int = 1, fps: int = FPS, shape: tuple[int, int] = (32, 48)
) -> Callable[[Path], Any]:
    return lambda root: write_video(
        root / VIDEO.format(episode), [frame_image(episode, frame, *shape) for frame in range(length)], fps=fps
    )


def empty_dataset(root: Path) -> None:
    (root / EPISODES).write_text("")
    set_info(total_episodes=0, total_frames=0)(root)


def million_columns(root: Path) -> None:
    """A parquet of 30,000 columns: already beyond the limit, and quick to write."""
    pq.write_table(pa.table({f"c{index}": pa.array([0.0]) for index in range(30_000)}), root / DATA.format(1))


def exchange_red_and_blue(root: Path) -> None:
    for episode, length in enumerate((12, 8, 10)):
        images = [frame_image(episode, frame)[..., ::-1] for frame in range(length)]
        write_video(root / VIDEO.format(episode), images)


def stuck(root: Path) -> None:
    (root / STATS).unlink()  # they would disagree
    for episode in range(3):
        edit_table(
            root / DATA.format(episode),
            lambda columns: columns.update(action=[[row[0], 0.5] for row in columns["action"]]),
        )


def giant_footer(root: Path) -> None:
    """A sparse file whose end claims 200 MB of metadata, as 10^6 columns would."""
    path = root / DATA.format(1)
    os.truncate(path, 220_000_000)
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(struct.pack("<I4s", 200_000_000, b"PAR1"))


PLANTED = [
    # statistics
    Planted("statistics missing", lambda root: (root / STATS).unlink(), "statistics_missing", {"file": STATS},
            "warning"),
    Planted("statistics of one episode missing", lambda root: edit_lines(root / STATS, lambda rows: rows.pop(1)),
            "statistics_missing", {"file": STATS, "episode": 1}, "warning"),
    Planted("image std above 0.5", set_stat(CAMERA, "std", [[[0.7]], [[0.1]], [[0.1]]]), "statistics_impossible",
            {"file": STATS, "episode": 1, "feature": CAMERA}, says="0.5"),
    Planted("image statistics of bytes", set_stat(CAMERA, "max", [[[255]], [[255]], [[255]]]), "statistics_impossible",
            {"episode": 1, "feature": CAMERA}, says="[0, 1]"),
    Planted("min above max", set_stat("action", "min", [9.0, -1.0]), "statistics_impossible", {"feature": "action"},
            says="min is above max (dimension 0)"),
    Planted("negative std", set_stat("action", "std", [0.1, -0.1]), "statistics_impossible", {"feature": "action"},
            says="negative (dimension 1)"),
    Planted("NaN statistics", set_stat("action", "mean", [0.1, float("nan")]), "statistics_impossible",
            {"feature": "action"}),
    Planted("too few statistics", set_stat("action", "mean", [0.1]), "statistics_impossible", {"feature": "action"}),
    Planted("statistics that are words", set_stat("action", "mean", "abc"), "statistics_impossible",
            {"feature": "action"}),
    Planted("statistics of other data", lambda root: edit_lines(root / STATS, lambda rows: rows[1].update(
            stats=rows[2]["stats"])), "statistics_disagree", {"file": STATS, "episode": 1}),
    # time
    Planted("fps of info.json wrong", set_info(fps=30), "fps_mismatch", {"episode": 0}, says="10.000 fps"),
    Planted("fps zero", set_info(fps=0), "fps_invalid", {"file": INFO}),
    Planted("a dropped frame", set_column("timestamp", [0, .1, .2, .3, .5, .6, .7, .8]), "timestamps_not_uniform",
            {"file": DATA.format(1), "episode": 1, "frame": 4, "feature": "timestamp"}),
    Planted("time does not start at 0", set_column("timestamp", [round(5 + i / 10, 1) for i in range(8)]),
            "timestamps_start", {"episode": 1, "frame": 0}),
    Planted("time is NaN", set_cell("timestamp", 3, float("nan")), "timestamps_not_uniform",
            {"episode": 1, "frame": 3}),
    # lengths
    Planted("total_frames wrong", set_info(total_frames=31), "total_frames", {"file": INFO}, says="31"),
    Planted("total_episodes wrong", set_info(total_episodes=4), "total_episodes", {"file": INFO}),
    Planted("total_tasks wrong", set_info(total_tasks=5), "total_tasks", {"file": INFO}),
    Planted("an episode claims more rows", set_episode(1, length=9), "episode_length",
            {"file": DATA.format(1), "episode": 1}, says="8 rows"),
    Planted("an episode claims fewer rows", set_episode(1, length=7), "episode_length", {"episode": 1}),
    Planted("an episode is missing", lambda root: edit_lines(root / EPISODES, lambda rows: rows.pop(1)),
            "episode_index", {"file": EPISODES, "episode": 2}),
    Planted("an episode occurs twice", set_episode(1, episode_index=2), "episode_repeated", {"episode": 2}),
    Planted("frame_index jumps", set_cell("frame_index", 5, 7), "frame_index_mismatch", {"episode": 1, "frame": 5}),
    Planted("index jumps", set_cell("index", 2, 99), "index_mismatch", {"episode": 1, "frame": 2}, says="expected 14"),
    Planted("rows of another episode", set_cell("episode_index", 6, 2), "episode_index_mismatch",
            {"episode": 1, "frame": 6}),
    Planted("unknown task", set_cell("task_index", 1, 9), "task_unknown", {"episode": 1, "frame": 1}),
    Planted("task text unknown", set_episode(1, tasks=["dance"]), "task_unknown", {"file": EPISODES, "episode": 1}),
    Planted("length is not a number", set_episode(1, length="8"), "episode_metadata", {"episode": 1}),
    # cameras
    Planted("neither camera nor state",
            lambda root: edit_json(root / INFO, lambda info: [info["features"].pop(key) for key in (CAMERA, STATE)]),
            "camera_missing", {"file": INFO}, says="no state"),
    Planted("a video is missing", lambda root: (root / VIDEO.format(1)).unlink(), "camera_missing",
            {"file": VIDEO.format(1), "episode": 1, "feature": CAMERA}),
    Planted("a video of another size", video_of(8, shape=(64, 48)), "camera_shape",
            {"file": VIDEO.format(1), "episode": 1, "feature": CAMERA}, says="64x48"),
    Planted("a video too short", video_of(6), "video_truncated",
            {"file": VIDEO.format(1), "episode": 1, "frame": 6, "feature": CAMERA}),
    Planted("a video too long", video_of(11), "video_longer", {"file": VIDEO.format(1), "episode": 1}, "warning"),
    Planted("a video of another rate", video_of(8, fps=15), "video_fps", {"file": VIDEO.format(1), "episode": 1}),
    Planted("ambiguous layout", set_feature(CAMERA, shape=[3, 48, 3], names=None), "camera_layout_ambiguous",
            {"file": INFO, "feature": CAMERA}),
    Planted("names contradict sizes", set_feature(CAMERA, names=["channels", "height", "width"]), "camera_layout",
            {"file": INFO, "feature": CAMERA}),
    Planted("flat image", set_feature(CAMERA, shape=[32, 48], names=None), "camera_shape", {"feature": CAMERA}),
    Planted("red and blue exchanged", exchange_red_and_blue, "channels_swapped", {"feature": CAMERA}, "warning"),
    # values
    Planted("a NaN state", set_cell("observation.state", 4, [0.0, float("nan"), 0.0]), "not_finite",
            {"file": DATA.format(1), "episode": 1, "frame": 4, "feature": "observation.state"}, says="1 (y)"),
    Planted("an infinite action", set_cell("action", 0, [float("inf"), 0.0]), "not_finite",
            {"episode": 1, "frame": 0, "feature": "action"}),
    Planted("an action too long", set_cell("action", 3, [1.0, 2.0, 3.0]), "vector_size",
            {"file": DATA.format(1), "episode": 1, "feature": "action"}),
    Planted("an action empty", set_cell("action", 3, None), "value_missing", {"episode": 1, "feature": "action"}),
    Planted("an action of words", set_column("action", [["left", "right"]] * 8), "column_type", {"feature": "action"}),
    Planted("a column missing", lambda root: edit_table(root / DATA.format(1), lambda columns: columns.pop("action")),
            "column_missing", {"file": DATA.format(1), "episode": None, "feature": "action"}),
    Planted("a motor that never moves", stuck, "dimension_constant", {"feature": "action"}, "warning", "dy"),
    Planted("wrong number of names", set_feature("action", names=["a", "b", "c"]), "dimension_names",
            {"feature": "action"}, "warning"),
    # empty
    Planted("empty dataset", empty_dataset, "dataset_empty", {"file": EPISODES}),
    Planted("empty episode", set_episode(1, length=0), "episode_empty", {"file": EPISODES, "episode": 1}),
    # version and metadata
    Planted("version 2.0", set_info(codebase_version="v2.0"), "codebase_version", {"file": INFO}, says="conver"),
    Planted("version 4", set_info(codebase_version="v4.0"), "codebase_version", {"file": INFO}, says="v3.0"),
    Planted("no version", set_info(codebase_version=None), "codebase_version", {"file": INFO}),
    Planted("info.json missing", lambda root: (root / INFO).unlink(), "file_missing", {"file": INFO}),
    Planted("info.json cut", cut(INFO, 0.5), "metadata_unreadable", {"file": INFO}),
    Planted("info.json is a list", lambda root: (root / INFO).write_text("[]"), "metadata_unreadable", {"file": INFO}),
    Planted("info.json nests without end", lambda root: (root / INFO).write_text("[" * 10**5), "metadata_unreadable",
            {"file": INFO}),
    Planted("info.json too large", lambda root: os.truncate(root / INFO, 2**26), "metadata_too_large", {"file": INFO}),
    Planted("a line of JSON is cut", cut(EPISODES, 0.9), "metadata_unreadable", {"file": EPISODES}, says="line 3"),
    Planted("too many features", set_info(features={f"c{i}": {"dtype": "float32", "shape": [1]} for i in range(2000)}),
            "too_many_columns", {"file": INFO}),
    Planted("two action columns", lambda root: edit_json(root / INFO, lambda info: info["features"].update(
            actions=info["features"]["action"])), "feature_ambiguous", {"file": INFO}),
    Planted("a path out of the dataset", set_info(data_path="../{episode_index}.parquet"), "path_outside_dataset"),
    Planted("a path template that reaches into objects", set_info(data_path="{episode_index.__class__}"),
            "path_template", says="malformed"),
    Planted("a path template as wide as memory", set_info(data_path="{episode_index:0999999999d}"), "path_template"),
    # files
    Planted("a truncated table", cut(DATA.format(1), 0.6), "parquet_truncated",
            {"file": DATA.format(1), "episode": 1}),
    Planted("an empty table file", cut(DATA.format(1), 0), "parquet_truncated", {"file": DATA.format(1)}),
    Planted("a missing table", lambda root: (root / DATA.format(1)).unlink(), "file_missing",
            {"file": DATA.format(1), "episode": 1}),
    Planted("a truncated video", cut(VIDEO.format(1), 0.7), "video_truncated",
            {"file": VIDEO.format(1), "episode": 1, "feature": CAMERA}),
    Planted("a video cut to its first bytes", cut(VIDEO.format(1), 0.02), "video_unreadable",
            {"file": VIDEO.format(1), "episode": 1, "feature": CAMERA}),
    Planted("a damaged video", damage(VIDEO.format(1)), "frame_corrupt",
            {"file": VIDEO.format(1), "episode": 1, "feature": CAMERA}),
    Planted("too many columns", million_columns, "too_many_columns", {"file": DATA.format(1)}),
    Planted("metadata of a million columns", giant_footer, "metadata_too_large", {"file": DATA.format(1)}),
    Planted("a pickle", lambda root: (root / "meta/stats.pkl").write_bytes(b"\x80\x04N."), "pickle",
            {"file": "meta/stats.pkl"}),
    Planted("a pickle in disguise", lambda root: (root / "meta/notes.txt").write_bytes(b"\x80\x04N."), "pickle",
            {"file": "meta/notes.txt"}),
    Planted("code", lambda root: (root / "setup.py").write_text("1"), "unknown_file", {"file": "setup.py"}, "warning"),
    Planted("an unknown file", lambda root: (root / "x.rar").write_text("1"), "unknown_file", {"file": "x.rar"},
            "warning"),
    Planted("a table nobody refers to", lambda root: shutil.copy(root / DATA.format(1), root / DATA.format(77)),
            "file_unused", {"file": DATA.format(77)}, "warning"),
    Planted("a link", lambda root: (root / "data/link").symlink_to("/etc/passwd"), "symlink", {"file": "data/link"}),
    Planted("a linked folder", lambda root: (root / "videos/more").symlink_to(root), "symlink",
            {"file": "videos/more"}),
    Planted("a pipe", lambda root: os.mkfifo(root / "data/pipe"), "special_file", {"file": "data/pipe"}),
    # declarations
    Planted("an unknown declaration", lambda root: (root / "meta/joynexus.json").write_text('{"grip": 1}'),
            "declared_invalid", {"file": "meta/joynexus.json"}, says="grip"),
    Planted("a gripper outside the action", lambda root: (root / "meta/joynexus.json").write_text(
            json.dumps({"gripper": {"index": 2, "convention": "open_positive"}})), "declared_invalid", says="gripper"),
    Planted("a rotation of no camera", lambda root: (root / "meta/joynexus.json").write_text(
            json.dumps({"rotations": {"wrist": 90}})), "camera_missing", {"feature": "wrist"}, says=CAMERA),
]  # fmt: skip


def test_a_valid_dataset_has_no_defect_at_all(v21: Path) -> None:
    report = validate_dataset(v21)
    assert report.defects == ()
    assert report.summary is not None
    assert (report.summary.episodes, report.summary.frames, report.summary.tasks) == (
        3,
        30,
        ("push the cube", "pick the cube"),
    )


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_defect_is_found_and_named(v21: Path, planted: Planted) -> None:
    planted.plant(v21)
    report = validate_dataset(v21)
    found = [defect for defect in report.defects if defect.code == planted.code]
    assert found, report.defects
    assert any(
        defect.severity == planted.severity
        and planted.says in defect.message
        and all(getattr(defect, name) == value for name, value in planted.place.items())
        for defect in found
    ), found
    assert report.ok == (planted.severity == "warning"), report.defects


def test_a_png_of_another_size_and_a_broken_one_are_named_with_their_frame(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "d", lengths=(6, 6), images_as="image")
    good = pq.read_table(root / DATA.format(1)).to_pydict()[CAMERA][0]["bytes"]
    edit_table(
        root / DATA.format(1), lambda columns: columns[CAMERA].__setitem__(4, {"bytes": good[:99], "path": None})
    )
    defect = next(found for found in validate_dataset(root).defects if found.code == "image_unreadable")
    assert (defect.file, defect.episode, defect.frame, defect.feature) == (DATA.format(1), 1, 4, CAMERA)


def test_findings_of_one_kind_are_counted_beyond_the_first_twenty(tmp_path: Path) -> None:
    root = write_v21(tmp_path / "d", lengths=(3,) * 25, images_as="image")
    for episode in range(25):
        set_cell("frame_index", 1, 9, episode)(root)
    defects = validate_dataset(root).defects
    assert sum(defect.code == "frame_index_mismatch" for defect in defects) == 20
    assert defects[-1].message == "5 more of frame_index_mismatch"


def test_a_large_dataset_is_decoded_in_samples_and_its_frame_times_are_still_all_checked(
    v21: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "DECODE_FRAMES_MAX", 10)
    decoded: list[int] = []
    monkeypatch.setattr(views.ChannelMeans, "add", lambda self, image: decoded.append(image.size))
    assert validate_dataset(v21).ok
    assert len(decoded) == 3 * 3  # first, middle and last of each episode
    video_of(7)(v21)
    assert "video_truncated" in {defect.code for defect in validate_dataset(v21).defects}


def test_statistics_of_a_long_line_are_refused_and_not_loaded(v21: Path) -> None:
    with (v21 / STATS).open("ab") as file:
        file.truncate(2**26)
    (found,) = (defect for defect in validate_dataset(v21).defects if defect.severity == "error")
    assert (found.code, found.file) == ("metadata_too_large", STATS)


@pytest.mark.parametrize("text", [r'"\ud800"', r'"a\u0000b"'])
def test_text_that_no_database_holds_is_refused_wherever_it_comes_from(v21: Path, text: str) -> None:
    report = validate_dataset(v21, {"robot_type": json.loads(text)})
    assert [defect.code for defect in report.defects] == ["declared_invalid"]
    (v21 / INFO).write_text((v21 / INFO).read_text().replace('"test_arm"', text))
    report = validate_dataset(v21)
    assert [(defect.code, defect.file) for defect in report.defects] == [("metadata_unreadable", INFO)]
    assert report.model_dump_json()
