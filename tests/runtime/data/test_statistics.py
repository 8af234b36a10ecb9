"""The reference pipeline against a plain numpy oracle."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gpu_runtime.data.fingerprint import dataset_fingerprint
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.recording.statistics import vector_summary
from gpu_runtime.data.statistics import dataset_statistics, vector_statistics

ROWS = npst.arrays(
    np.float32,
    st.tuples(st.integers(1, 60), st.integers(1, 4)),
    elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
)


@given(values=ROWS)
def test_statistics_equal_a_numpy_oracle(values: np.ndarray) -> None:
    found = vector_statistics(values)
    exact = values.astype(np.float64)
    oracle = {
        "mean": exact.sum(axis=0) / len(exact),
        "std": np.sqrt(((exact - exact.mean(axis=0)) ** 2).sum(axis=0) / len(exact)),
        "min": np.sort(exact, axis=0)[0],
        "max": np.sort(exact, axis=0)[-1],
        "q01": np.percentile(exact, 1, axis=0),
        "q99": np.percentile(exact, 99, axis=0),
    }
    for name, expected in oracle.items():
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-9, atol=1e-6, err_msg=name)


@given(values=ROWS)
def test_the_recorder_writes_the_same_statistics(values: np.ndarray) -> None:
    found, written = vector_statistics(values), vector_summary(values)
    for name in ("mean", "std", "min", "max", "q01", "q99"):
        np.testing.assert_allclose(getattr(found, name), written[name], rtol=1e-9, atol=1e-6)


def test_both_formats_of_one_recording_have_one_statistics_hash(pristine: dict[str, Path]) -> None:
    hashes = {dataset_statistics(LeRobotDataset.open(path)).hash for path in pristine.values()}
    assert len(hashes) == 1


def test_one_changed_value_changes_the_hash(pristine: dict[str, Path]) -> None:
    dataset = LeRobotDataset.open(pristine["v2.1"])
    before = dataset_statistics(dataset).hash
    dataset.actions_NA()[3, 1] += np.float32(1e-3)
    assert dataset_statistics(dataset).hash != before


def test_a_value_that_is_not_finite_is_refused_with_its_place() -> None:
    values = np.zeros((5, 2))
    values[3, 1] = np.inf
    with pytest.raises(ValueError, match="row 3, dimension 1 is inf"):
        vector_statistics(values)


def test_the_fingerprint_covers_names_and_contents_in_path_order(tmp_path: Path) -> None:
    for name, content in {"a": "1", "b": "2"}.items():
        (tmp_path / name).write_text(content)
    original = dataset_fingerprint(tmp_path, ["b", "a"])
    assert original == dataset_fingerprint(tmp_path, ["a", "b"])
    (tmp_path / "a").write_text("12")
    (tmp_path / "b").write_text("")
    assert dataset_fingerprint(tmp_path, ["a", "b"]) != original
