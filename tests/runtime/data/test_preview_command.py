"""`python -m gpu_runtime preview`: what is in a dataset, read within limits."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.preview import VALUES_MAX, episode_series, episodes_page, frame_jpeg
from tests.support.lerobot_v21 import CAMERA, DATA, edit_table, frame_image, states_and_actions


def run(path: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gpu_runtime", "preview", str(path), *options]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_episodes_come_with_length_and_instruction_by_the_page(pristine: dict[str, Path], version: str):
    dataset = LeRobotDataset.open(pristine[version])
    whole = episodes_page(dataset, first=0, count=100)["episodes"]
    assert [(row["index"], row["length"]) for row in whole] == [(0, 12), (1, 8), (2, 10)]
    assert {row["task"] for row in whole} == {"push the cube", "pick the cube"}
    assert episodes_page(dataset, first=2, count=1) == {"total": 3, "episodes": whole[2:]}
    assert episodes_page(dataset, first=3, count=5) == {"total": 3, "episodes": []}
    assert episodes_page(dataset, first=1, count=5, task="push the cube") == {"total": 2, "episodes": whole[2:]}


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ({"success_once": [True, False, True], "seeds": [4, 5, 6]}, [(True, 4), (False, 5), (True, 6)]),
        ({"success_once": [True, False], "seeds": "7"}, [(None, None)] * 3),  # of another number of episodes
        ({"success_once": [1, None, "yes"], "seeds": [True, 0.5, 2**70]}, [(None, None)] * 3),
        ([], [(None, None)] * 3),
    ],
)
def test_outcomes_are_told_where_the_recording_says_them(v21: Path, told: object, known: list[tuple[object, object]]):
    (v21 / "meta/recording.json").write_text(json.dumps(told))
    rows = episodes_page(LeRobotDataset.open(v21), first=0, count=3)["episodes"]
    assert [(row["success_once"], row["seed"]) for row in rows] == known


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
@pytest.mark.parametrize("episode", [0, 2])
def test_curves_are_the_values_themselves_where_there_is_room(pristine: dict[str, Path], version: str, episode: int):
    series = episode_series(LeRobotDataset.open(pristine[version]), episode, points_max=100)
    states, actions = states_and_actions(series["length"], episode)
    assert series["frames"] == list(range(series["length"]))
    for shown, values in ((series["state"], states), (series["action"], actions)):
        assert [curve["min"] for curve in shown] == [curve["max"] for curve in shown]
        np.testing.assert_allclose([curve["min"] for curve in shown], values.T, rtol=1e-5)


@pytest.mark.parametrize("points", [1, 3, 5, 7])
def test_a_bucket_keeps_the_least_and_the_greatest_value(pristine: dict[str, Path], points: int):
    series = episode_series(LeRobotDataset.open(pristine["v2.1"]), 0, points_max=points)
    states, _ = states_and_actions(12, 0)
    ends = [*series["frames"][1:], 12]
    assert len(series["frames"]) == points
    for dim, curve in enumerate(series["state"]):
        for begin, end, low, high in zip(series["frames"], ends, curve["min"], curve["max"], strict=True):
            np.testing.assert_allclose(
                [low, high], [states[begin:end, dim].min(), states[begin:end, dim].max()], rtol=1e-5
            )


def test_what_is_no_number_leaves_a_gap_and_never_breaks_the_json(v21: Path):
    def spoil(columns: dict[str, list]) -> None:
        states = np.array(columns["observation.state"], np.float32)
        states[3:6, 0] = np.nan
        states[4, 1], states[0, 2] = np.inf, -np.inf
        columns["observation.state"] = states.tolist()

    edit_table(v21 / DATA.format(0), spoil)
    series = episode_series(LeRobotDataset.open(v21), 0, points_max=4)  # buckets of three frames
    x, y, z = series["state"]
    assert (x["min"][1], x["max"][1]) == (None, None)
    assert None not in x["min"][2:] + y["max"] + z["min"]
    json.dumps(series, allow_nan=False)


def test_an_answer_is_bounded_however_many_dimensions_there_are(tmp_path: Path, pristine, monkeypatch):
    monkeypatch.setattr("gpu_runtime.data.preview.VALUES_MAX", 2 * 5 * 4)  # five dimensions: four buckets
    assert VALUES_MAX > 40
    series = episode_series(LeRobotDataset.open(pristine["v2.1"]), 0, points_max=2000)
    assert len(series["frames"]) == 4


@pytest.mark.parametrize(("version", "turned_deg"), [("v2.1", 0), ("v3.0", 180)])  # as each one declares
def test_a_frame_is_the_stored_one_upright_as_jpeg(pristine: dict[str, Path], version: str, turned_deg: int):
    content = frame_jpeg(LeRobotDataset.open(pristine[version]), 1, camera=CAMERA, frame=5)
    with Image.open(io.BytesIO(content)) as image:
        assert (image.format, image.size) == ("JPEG", (48, 32))
        difference = np.asarray(image, np.float64) - np.rot90(frame_image(1, 5), k=turned_deg // 90)
    assert np.abs(difference).mean() < 8


def test_a_frame_is_turned_upright_as_declared(pristine: dict[str, Path]):
    dataset = LeRobotDataset.open(pristine["v2.1"], {"rotations": {CAMERA: 90}})
    with Image.open(io.BytesIO(frame_jpeg(dataset, 1, camera=CAMERA, frame=5))) as image:
        difference = np.asarray(image, np.float64) - np.rot90(frame_image(1, 5))
    assert np.abs(difference).mean() < 8


def test_only_the_file_of_the_episode_is_read(v21: Path):
    (v21 / DATA.format(0)).unlink()
    dataset = LeRobotDataset.open(v21)
    assert episode_series(dataset, 1, points_max=50)["length"] == 8
    assert run(v21, "episode", "0").returncode == 3


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["episode", "3"], "episode_missing"),
        (["frame", "1", CAMERA, "8"], "frame_missing"),
        (["frame", "1", "elsewhere", "0"], "camera_missing"),
    ],
)
def test_what_is_not_there_is_told_by_name(pristine: dict[str, Path], options: list[str], code: str):
    done = run(pristine["v2.1"], *options)
    assert (done.returncode, json.loads(done.stdout)["code"]) == (3, code)


def test_a_reader_that_needs_more_than_allowed_ends(pristine: dict[str, Path]):
    done = run(pristine["v2.1"], "--memory-mib", "60", "episode", "0")
    assert done.returncode not in (0, 2, 3)


def test_the_command_prints_json_and_jpeg(pristine: dict[str, Path]):
    path = pristine["v3.0"]
    assert [row["index"] for row in json.loads(run(path, "episodes", "--first", "1").stdout)["episodes"]] == [1, 2]
    assert json.loads(run(path, "episode", "--points", "2", "--", "0").stdout)["frames"] == [0, 6]
    assert run(path, "frame", "--", "0", CAMERA, "0").stdout.startswith(b"\xff\xd8\xff")


def test_damaged_columns_are_a_refusal_not_a_crash(v21: Path):
    pq.write_table(pa.table({"action": [1.0]}), v21 / DATA.format(2))
    assert run(v21, "episode", "2").returncode == 3
