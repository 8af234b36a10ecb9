"""The data tables row by row: bookkeeping columns, uniform time, finite vectors of the declared size.

Shapes: L frames of one episode, D dimensions.
"""

from collections import defaultdict

import numpy as np
import pyarrow as pa

from gpu_runtime.data.episode import Episode
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.tables import check_row_count, open_parquet, read_columns, scalar_column, vector_column
from gpu_runtime.data.validation.findings import Findings, Place
from gpu_runtime.data.video import TOLERANCE_S
from gpu_runtime.protocol.schema import VectorFeature

BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")


def check_rows(dataset: LeRobotDataset, findings: Findings) -> None:
    """Check every data file, one in memory at a time."""
    by_file: dict[str, list[Episode]] = defaultdict(list)
    for episode in dataset.episodes:
        by_file[episode.data_file].append(episode)
    for file, episodes in by_file.items():
        with findings.guard(file, episode=episodes[0].index):
            _check_file(dataset, file, episodes, findings)


def _check_file(dataset: LeRobotDataset, file: str, episodes: list[Episode], findings: Findings) -> None:
    vectors = [vector for vector in (dataset.schema.state, dataset.schema.action) if vector is not None]
    present = open_parquet(dataset.root, file).schema_arrow.names
    missing = [name for name in (*BOOKKEEPING, *(vector.key for vector in vectors)) if name not in present]
    for name in missing:
        findings.error("column_missing", f"there is no column {name!r}", file=file, feature=name)
    columns = [name for name in (*BOOKKEEPING, *(vector.key for vector in vectors)) if name not in missing]
    check_row_count(dataset.root, file, sum(episode.length for episode in episodes))
    table = read_columns(dataset.root, file, columns)
    for vector in vectors:
        if vector.key not in missing:
            with findings.guard(file, episode=episodes[0].index, feature=vector.key):
                _check_vector(table, vector, file, episodes, findings)
    for name in set(BOOKKEEPING) - set(missing):
        with findings.guard(file, episode=episodes[0].index, feature=name):
            values = scalar_column(table, name, np.float64 if name == "timestamp" else np.int64, file)
            for episode in episodes:
                _check_bookkeeping(dataset, episode, name, _part(values, episode), findings)


def _part(values: np.ndarray, episode: Episode) -> np.ndarray:
    return values[episode.row_start : episode.row_start + episode.length]


def _check_vector(
    table: pa.Table, vector: VectorFeature, file: str, episodes: list[Episode], findings: Findings
) -> None:
    values_ND = vector_column(table, vector.key, vector.dim, file)
    if np.isfinite(values_ND).all():
        return
    for episode in episodes:
        wrong = np.argwhere(~np.isfinite(_part(values_ND, episode)))
        if wrong.size:
            frame, dimension = map(int, wrong[0])
            findings.error(
                "not_finite",
                f"{vector.key} dimension {dimension} ({vector.names[dimension]}) is NaN or infinite; "
                f"{len(wrong)} such values in the episode",
                file=file,
                episode=episode.index,
                frame=frame,
                feature=vector.key,
            )


def _check_bookkeeping(
    dataset: LeRobotDataset, episode: Episode, name: str, values_L: np.ndarray, findings: Findings
) -> None:
    if name == "timestamp":
        _check_time(dataset.info.fps, episode, values_L, findings)
        return
    order = np.arange(len(values_L))
    if name == "task_index":
        wrong = np.flatnonzero(~np.isin(values_L, list(dataset.tasks)))
        expected = "the indices of the task table"
    else:
        start = {"frame_index": order, "index": order + episode.from_index}.get(name)
        target = start if start is not None else np.full(len(values_L), episode.index)
        wrong = np.flatnonzero(values_L != target)
        expected = str(target[wrong[0]]) if wrong.size else ""
    if wrong.size:
        findings.error(
            "task_unknown" if name == "task_index" else f"{name}_mismatch",
            f"{name} is {values_L[wrong[0]]}; expected {expected}",
            file=episode.data_file,
            episode=episode.index,
            frame=int(wrong[0]),
            feature=name,
        )


def _check_time(fps: float, episode: Episode, times_L: np.ndarray, findings: Findings) -> None:
    """Timestamps start at 0 and advance by 1/fps within LeRobot's tolerance (plus float32 rounding)."""
    place: Place = {"file": episode.data_file, "episode": episode.index, "feature": "timestamp"}
    if not len(times_L):
        return
    if not abs(times_L[0]) <= TOLERANCE_S:
        findings.error("timestamps_start", f"starts at {times_L[0]} s; every episode starts at 0", frame=0, **place)
    steps = np.diff(times_L)
    slack = TOLERANCE_S + np.spacing(np.abs(times_L[1:]).astype(np.float32)).astype(np.float64)
    wrong = np.flatnonzero(~(np.abs(steps - 1 / fps) <= slack))
    if not wrong.size:
        return
    usual = float(np.median(steps))
    if len(wrong) > len(steps) / 2 and usual > 0:
        findings.error(
            "fps_mismatch",
            f"frames are {usual:.6f} s apart ({1 / usual:.3f} fps); info.json says {fps:g} fps",
            **place,
        )
    else:
        frame = int(wrong[0]) + 1
        findings.error(
            "timestamps_not_uniform",
            f"{steps[wrong[0]]:.6f} s after the frame before; {1 / fps:.6f} s expected; {len(wrong)} such steps",
            frame=frame,
            **place,
        )
