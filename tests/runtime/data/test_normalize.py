"""Normalisation: stored statistics only, degenerate dimensions, foreign statistics refused."""

import json

import numpy as np
import pytest

from gpu_runtime.data.errors import ForeignStatistics
from gpu_runtime.data.normalize import NormalizationMode, Normalizer
from gpu_runtime.data.statistics import vector_statistics
from gpu_runtime.protocol.schema import VectorStatistics

MODES = list(NormalizationMode)


def data(seed: int = 0) -> np.ndarray:
    """Three dimensions: usual, large, and a joint that never moves."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(0.2, 0.5, 2000), rng.normal(300, 40, 2000), np.full(2000, 0.7)], axis=1).astype(
        np.float32
    )


def normalizer(values: np.ndarray, mode: NormalizationMode = NormalizationMode.QUANTILE) -> Normalizer:
    return Normalizer.from_statistics(vector_statistics(values), mode, ("reach", "turn", "stuck"))


@pytest.mark.parametrize("mode", MODES)
def test_denormalize_is_the_inverse_of_normalize(mode: NormalizationMode) -> None:
    values = data()
    there = normalizer(values, mode)
    np.testing.assert_allclose(there.denormalize(there.normalize(values)), values, rtol=1e-5, atol=1e-6)
    assert there.normalize(values).dtype == np.float32


def test_each_mode_maps_its_own_statistics_to_the_model_range() -> None:
    values = data()
    quantile, z_score, limits = (normalizer(values, mode).normalize(values)[:, :2] for mode in MODES)
    np.testing.assert_allclose(np.quantile(quantile, [0.01, 0.99], axis=0), [[-1, -1], [1, 1]], atol=1e-4)
    np.testing.assert_allclose([z_score.mean(axis=0), z_score.std(axis=0)], [[0, 0], [1, 1]], atol=1e-3)
    np.testing.assert_allclose([limits.min(axis=0), limits.max(axis=0)], [[-1, -1], [1, 1]], atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_joint_that_never_moves_is_zero_and_comes_back_as_its_constant(mode: NormalizationMode) -> None:
    there = normalizer(data(), mode)
    assert there.degenerate_D.tolist() == [False, False, True]
    shaken = data() + np.float32(1e-5)
    assert (there.normalize(shaken)[:, 2] == 0).all()
    np.testing.assert_allclose(there.denormalize(np.full((4, 3), 0.9))[:, 2], 0.7, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_statistics_of_the_data_itself_are_accepted(mode: NormalizationMode) -> None:
    values = data()
    there = normalizer(values, mode)
    assert (there.out_of_range(values) <= 0.0201).all()
    there.check_own(values)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dimension", "name"), [(0, "reach"), (1, "turn"), (2, "stuck")])
def test_foreign_statistics_are_refused_naming_the_dimension_and_the_share(
    mode: NormalizationMode, dimension: int, name: str
) -> None:
    foreign = data()
    foreign[:, dimension] = foreign[:, dimension] + (5, 300, 1)[dimension]
    with pytest.raises(ForeignStatistics, match=rf"dimension {dimension} \({name}\): \d+\.\d%"):
        normalizer(data(), mode).check_own(foreign)


def test_a_share_just_below_the_limit_is_accepted_and_just_above_is_not() -> None:
    values = data()
    there = normalizer(values, NormalizationMode.MIN_MAX)
    moved = values.copy()
    moved[:400, 0] = 99
    there.check_own(moved)
    moved[:401, 0] = 99
    with pytest.raises(ForeignStatistics):
        there.check_own(moved)


def test_not_a_number_counts_as_outside() -> None:
    values = data()
    values[:1000, 1] = np.nan
    assert normalizer(data()).out_of_range(values)[1] >= 0.5


@pytest.mark.parametrize("mode", MODES)
def test_json_gives_back_the_same_normalizer(mode: NormalizationMode) -> None:
    there = normalizer(data(), mode)
    back = Normalizer.from_json(json.loads(json.dumps(there.to_json())))
    np.testing.assert_array_equal(back.normalize(data(5)), there.normalize(data(5)))
    assert back.names == there.names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q01": (0.0,)}, r"statistics.q01 has 1 values for 3"),
        ({"std": (0.1, float("nan"), 0.1)}, r"statistics.std\[1\] \(turn\) is nan"),
        ({"min": (9e9, 0.0, 0.0)}, r"statistics.min > statistics.max for dimension 0 \(reach\)"),
        ({"std": (0.1, 0.1, -0.1)}, r"statistics.std\[2\] \(stuck\) is negative"),
    ],
)
def test_impossible_statistics_are_refused_by_name(change: dict[str, tuple[float, ...]], message: str) -> None:
    wrong = VectorStatistics.model_validate(vector_statistics(data()).model_dump() | change)
    with pytest.raises(ValueError, match=message):
        Normalizer.from_statistics(wrong, "quantile", ("reach", "turn", "stuck"))


def test_values_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="the last dimension must be 3: reach, turn, stuck"):
        normalizer(data()).normalize(np.zeros((5, 4)))
