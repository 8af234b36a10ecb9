"""The statistics that came with the dataset: present, possible, and of this data.

They are never used: the platform computes its own. Wrong ones mean that data and metadata do not belong together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_runtime.data import episodes_v21, episodes_v30
from gpu_runtime.data.files import iter_json_lines, read_json_object
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.validation.findings import Findings, Place

NAMES = ("min", "max", "mean", "std")
SLIGHT, GROSS = 0.01, 0.1  # share of a dimension's range by which stored and computed values may differ
IMAGE_STD_MAX = 0.5  # no distribution on [0, 1] has a larger one (lerobot #3682)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Stored statistics of one feature, of one episode (v2.1) or of the dataset (v3.0)."""

    file: str
    episode: int | None
    feature: str
    values: dict[str, np.ndarray]


def check_stored_statistics(dataset: LeRobotDataset, findings: Findings) -> list[Block]:
    """Check all stored statistics and compare vectors with the data; returns the possible ones of images."""
    file = (episodes_v21 if dataset.info.major == 2 else episodes_v30).STATISTICS_FILE
    images: list[Block] = []
    if not (dataset.root / file).is_file():
        findings.warning("statistics_missing", f"{file} is missing; the platform computes its own", file=file)
        return images
    with findings.guard(file):
        for episode, stored in _read(dataset, file, findings):
            for feature in _features(dataset):
                block = _block(file, episode, feature, stored.get(feature), findings)
                if block is None or not _possible(block, dataset, findings):
                    continue
                if dataset.info.features[feature].is_image:
                    images.append(block)
                else:
                    _compare(block, dataset, findings)
    return images


def _features(dataset: LeRobotDataset) -> list[str]:
    vectors = [vector.key for vector in (dataset.schema.state, dataset.schema.action) if vector is not None]
    return vectors + [camera.key for camera in dataset.schema.cameras]


def _read(dataset: LeRobotDataset, file: str, findings: Findings) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """(None, statistics of the dataset), or (episode index, its statistics) one after the other."""
    if dataset.info.major != 2:
        yield None, read_json_object(dataset.root, file)
        return
    left = set(dataset.positions)
    for row in iter_json_lines(dataset.root, file):
        index, stats = row.get("episode_index"), row.get("stats")
        if type(index) is int and index in left and isinstance(stats, dict):
            left.discard(index)
            yield index, stats
    for index in sorted(left):
        findings.warning("statistics_missing", "no statistics of this episode", file=file, episode=index)


def _block(file: str, episode: int | None, feature: str, raw: Any, findings: Findings) -> Block | None:
    place: Place = {"file": file, "episode": episode, "feature": feature}
    if not isinstance(raw, dict) or any(name not in raw for name in NAMES):
        missing = list(NAMES) if not isinstance(raw, dict) else [name for name in NAMES if name not in raw]
        findings.warning("statistics_missing", f"no {', '.join(missing)} of {feature}", **place)
        return None
    try:
        values = {name: np.asarray(raw[name], np.float64).reshape(-1) for name in NAMES}
    except (TypeError, ValueError, OverflowError) as error:
        findings.error("statistics_impossible", f"{feature}: not numbers: {error}", **place)
        return None
    return Block(file=file, episode=episode, feature=feature, values=values)


def _possible(block: Block, dataset: LeRobotDataset, findings: Findings) -> bool:
    """Whether the numbers can be statistics of anything; reports the first that cannot."""
    values = block.values
    is_image = dataset.info.features[block.feature].is_image
    dim = 3 if is_image else dataset.info.features[block.feature].shape[0]
    problems = [f"{name} has {array.size} values for {dim}" for name, array in values.items() if array.size != dim]
    if not problems:
        slack = 1e-4 * (1 + np.abs(values["max"] - values["min"]))
        outside = (values["mean"] < values["min"] - slack) | (values["mean"] > values["max"] + slack)
        found = {
            "a value is NaN or infinite": ~np.isfinite(np.stack(list(values.values()))).all(axis=0),
            "min is above max": values["min"] > values["max"],
            "std is negative": values["std"] < 0,
            "mean is outside min..max": outside,
            "std is more than half of max - min": values["std"] > (values["max"] - values["min"]) / 2 + slack,
        }
        if is_image:
            found["an image's std is above 0.5, impossible on [0, 1]"] = values["std"] > IMAGE_STD_MAX + 1e-6
            found["an image's range is not [0, 1]"] = (values["min"] < -1e-6) | (values["max"] > 1 + 1e-6)
        problems = [f"{what} (dimension {np.flatnonzero(bad)[0]})" for what, bad in found.items() if bad.any()]
    if problems:
        place: Place = {"file": block.file, "episode": block.episode, "feature": block.feature}
        findings.error("statistics_impossible", f"{block.feature}: {'; '.join(problems)}", **place)
    return not problems


def _compare(block: Block, dataset: LeRobotDataset, findings: Findings) -> None:
    """Compare with the state or action data; gross differences are errors, slight ones warnings."""
    data = dataset.actions_NA() if block.feature == dataset.schema.action.key else dataset.states_NS()
    assert data is not None
    rows = slice(None) if block.episode is None else dataset.rows(dataset.positions[block.episode])
    own = data[rows].astype(np.float64)
    if not len(own) or not np.isfinite(own).all():
        return
    computed = {"min": own.min(axis=0), "max": own.max(axis=0), "mean": own.mean(axis=0), "std": own.std(axis=0)}
    scale = np.maximum(computed["max"] - computed["min"], 1e-2)
    shares = np.stack([np.abs(block.values[name] - computed[name]) / scale for name in NAMES])
    name, dimension = np.unravel_index(int(np.argmax(shares)), shares.shape)
    if shares.max() > SLIGHT:
        report = findings.error if shares.max() > GROSS else findings.warning
        report(
            "statistics_disagree",
            f"{block.feature}: stored {NAMES[name]} of dimension {dimension} is "
            f"{block.values[NAMES[name]][dimension]:.6g}; the data has {computed[NAMES[name]][dimension]:.6g}",
            file=block.file,
            episode=block.episode,
            feature=block.feature,
        )
