"""The one reference pipeline of normalisation statistics: every frame once, float64, exact quantiles.

No sampling, no padding, no transform before it. Shapes: N frames, D dimensions.
"""

import numpy as np

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.protocol.schema import DatasetStatistics, VectorStatistics


def vector_statistics(values_ND: np.ndarray) -> VectorStatistics:
    """Population statistics of each dimension; quantiles interpolate linearly, as ``numpy.quantile`` does.

    Raises ValueError for no rows or a non-finite value, naming row and dimension.
    """
    if values_ND.ndim != 2 or values_ND.shape[0] == 0:
        raise ValueError(
            f"values have shape {values_ND.shape}; [frames, dimensions] with at least one frame is needed"
        )
    wrong = np.argwhere(~np.isfinite(values_ND))
    if wrong.size:
        row, dimension = wrong[0]
        raise ValueError(f"row {row}, dimension {dimension} is {values_ND[row, dimension]}; it must be finite")
    # One dimension at a time: a float64 copy of a large dataset would double its memory twice.
    rows = [_dimension(values_ND[:, dimension].astype(np.float64)) for dimension in range(values_ND.shape[1])]
    mean, std, low, high, q01, q99 = zip(*rows, strict=True)
    return VectorStatistics(mean=mean, std=std, min=low, max=high, q01=q01, q99=q99)


def _dimension(values_N: np.ndarray) -> tuple[float, float, float, float, float, float]:
    q01, q99 = np.quantile(values_N, (0.01, 0.99))
    return (
        float(values_N.mean()),
        float(values_N.std()),
        float(values_N.min()),
        float(values_N.max()),
        float(q01),
        float(q99),
    )


def dataset_statistics(dataset: LeRobotDataset) -> DatasetStatistics:
    """Statistics of the state and the action over every frame; raises DatasetError naming the feature."""
    states_NS = dataset.states_NS()
    return DatasetStatistics(
        state=None
        if states_NS is None or dataset.schema.state is None
        else _named(dataset.schema.state.key, states_NS),
        action=_named(dataset.schema.action.key, dataset.actions_NA()),
        frames=dataset.frame_count,
    )


def _named(key: str, values_ND: np.ndarray) -> VectorStatistics:
    try:
        return vector_statistics(values_ND)
    except ValueError as error:
        raise DatasetError("statistics_impossible", f"{key}: {error}", feature=key) from error
