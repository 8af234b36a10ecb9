"""Rows, keys and sizes that the feature store's tests share."""

from pathlib import Path

import torch

from gpu_runtime.features.keys import FrameKey, dataset_name
from gpu_runtime.features.rows import Rows

OURS, THEIRS = dataset_name("ours", "1" * 8), dataset_name("theirs", "1" * 8)
MIB = 2**20


def key(frame: int, dataset: str = OURS) -> FrameKey:
    return FrameKey(dataset=dataset, episode=frame // 10, frame=frame % 10, prefix="p", instruction="push")


def rows(seed: int, length: int = 6, width: int = 32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "layer:-1": torch.randn(length, width, generator=generator),
        "vision": torch.randn(length + 3, width // 2, generator=generator),
    }


def same(left: Rows, right: Rows) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[tap], right[tap]) for tap in left)


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
