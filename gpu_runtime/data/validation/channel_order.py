"""RGB or BGR: decoded channel means against the stored ones. A suspicion only, so it never refuses a dataset."""

from collections.abc import Mapping, Sequence

import numpy as np

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.validation.findings import Findings, Place
from gpu_runtime.data.validation.stored_statistics import Block
from gpu_runtime.data.validation.views import ChannelMeans

DIFFERENT = 0.05  # of [0, 1]: stored image statistics come from a sample of frames, before video compression
DISAGREE = 0.15


def check_channel_order(
    dataset: LeRobotDataset, stored: Sequence[Block], means: Mapping[str, ChannelMeans], findings: Findings
) -> None:
    """Warn where the stored means fit the decoded frames better with red and blue exchanged, or not at all."""
    for camera, seen in means.items():
        blocks = [block for block in stored if block.feature == camera]
        if not blocks or not seen.frames:
            continue
        stored_C = _mean(dataset, blocks)
        as_is = float(np.abs(stored_C - seen.mean_C).max())
        exchanged = float(np.abs(stored_C[::-1] - seen.mean_C).max())
        place: Place = {"file": blocks[0].file, "feature": camera}
        detail = f"{camera}: stored channel means {_text(stored_C)}, decoded {_text(seen.mean_C)}"
        if as_is > DIFFERENT and exchanged < as_is / 2:
            findings.warning("channels_swapped", f"{detail}: are the images BGR?", **place)
        elif as_is > DISAGREE:
            findings.warning("statistics_disagree", detail, **place)


def _mean(dataset: LeRobotDataset, blocks: Sequence[Block]) -> np.ndarray:
    """Stored mean of the whole dataset: of v2.1's episodes weighted by their length."""
    lengths = {episode.index: episode.length for episode in dataset.episodes}
    weights = [1 if block.episode is None else lengths[block.episode] for block in blocks]
    if not sum(weights):
        weights = [1] * len(blocks)
    return np.average([block.values["mean"] for block in blocks], axis=0, weights=weights)


def _text(values_C: np.ndarray) -> str:
    return "[" + ", ".join(f"{value:.3f}" for value in values_C) + "]"
