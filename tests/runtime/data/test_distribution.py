"""Histograms of a dataset against numpy, and what is said of dimensions that stand still or run away."""

from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.distribution import BINS, LENGTH_BINS, distribution
from gpu_runtime.data.lerobot import LeRobotDataset
from tests.support.lerobot_v21 import DATA, edit_table, states_and_actions, write_v21

LENGTHS = (12, 8, 10)


def whole(which: int) -> np.ndarray:
    return np.concatenate([states_and_actions(length, episode)[which] for episode, length in enumerate(LENGTHS)])


def set_action(root: Path, dim: int, value_of) -> None:
    """Change one dimension of the action everywhere; ``value_of`` gets (episode, frame)."""
    for episode, length in enumerate(LENGTHS):

        def change(columns: dict[str, list], episode: int = episode, length: int = length) -> None:
            actions = np.array(columns["action"], np.float32)
            actions[:, dim] = [value_of(episode, frame) for frame in range(length)]
            columns["action"] = actions.tolist()

        edit_table(root / DATA.format(episode), change)


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
@pytest.mark.parametrize(("name", "which"), [("state", 0), ("action", 1)])
def test_every_frame_counts_once_in_the_bin_numpy_puts_it_in(pristine: dict[str, Path], version, name, which):
    values_ND = whole(which)
    for dim, told in enumerate(distribution(LeRobotDataset.open(pristine[version]))[name]):
        column = values_ND[:, dim].astype(np.float64)
        counts, edges = np.histogram(column, bins=BINS)
        assert (told["counts"], sum(told["counts"])) == (counts.tolist(), sum(LENGTHS))
        assert (told["low"], told["high"]) == (edges[0], edges[-1])


def test_the_share_outside_and_the_farthest_are_those_of_the_normaliser(pristine: dict[str, Path]):
    (told, *_) = distribution(LeRobotDataset.open(pristine["v2.1"]))["action"]
    column = whole(1)[:, 0].astype(np.float64)
    q01, q99 = np.quantile(column, (0.01, 0.99))
    outside = ((column < q01) | (column > q99)).mean()
    assert told["outside"] == pytest.approx(outside, abs=1e-6)
    scaled = 2 * (column - q01) / (q99 - q01) - 1
    assert told["farthest"] == pytest.approx(np.abs(scaled).max(), rel=1e-4)


def test_a_dimension_that_stands_still_has_one_bin_and_is_flagged(v21: Path):
    set_action(v21, 1, lambda episode, frame: 0.5)
    told = distribution(LeRobotDataset.open(v21))["action"][1]
    assert (told["low"], told["high"], told["counts"]) == (0.5, 0.5, [30])
    assert (told["degenerate"], told["farthest"]) == (True, None)


def test_one_value_far_out_shows_as_the_farthest(v21: Path):
    set_action(v21, 0, lambda episode, frame: 1000.0 if (episode, frame) == (0, 3) else frame / 10)
    assert distribution(LeRobotDataset.open(v21))["action"][0]["farthest"] > 1.3


def test_lengths_and_instructions_are_counted_by_episode(pristine: dict[str, Path]):
    told = distribution(LeRobotDataset.open(pristine["v2.1"]))
    assert told["lengths"] == {"starts": [8, 9, 10, 11, 12], "width": 1, "counts": [1, 0, 1, 0, 1]}
    assert told["tasks"] == [{"task": "push the cube", "episodes": 2}, {"task": "pick the cube", "episodes": 1}]


def test_lengths_far_apart_share_bins_of_whole_frames(tmp_path: Path):
    path = write_v21(tmp_path / "long", lengths=(2, 101, 60), images_as="image")
    lengths = distribution(LeRobotDataset.open(path))["lengths"]
    assert (lengths["width"], sum(lengths["counts"])) == (5, 3)
    assert len(lengths["starts"]) <= LENGTH_BINS
    assert (lengths["counts"][0], lengths["counts"][-1]) == (1, 1)
