"""What a recording of ours says of its episodes beside the frames: whether each succeeded, and its seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import read_json_object

RECORDING_FILE = "meta/recording.json"
_SEED_MAX = 2**53  # what JSON readers keep exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one episode; None: the recording does not say."""

    success_once: bool | None = None
    seed: int | None = None


def read_outcomes(root: Path, episodes: int) -> Sequence[Outcome]:
    """One per position. Other people's recordings have no such file, or one that means something else: all unknown."""
    try:
        told = read_json_object(root, RECORDING_FILE)
    except DatasetError:
        told = {}
    successes = _column(told.get("success_once"), episodes)
    seeds = _column(told.get("seeds"), episodes)
    return [
        Outcome(
            success_once=success if isinstance(success, bool) else None,
            seed=seed if isinstance(seed, int) and not isinstance(seed, bool) and abs(seed) < _SEED_MAX else None,
        )
        for success, seed in zip(successes, seeds, strict=True)
    ]


def _column(value: Any, episodes: int) -> Sequence[Any]:
    """A list with a value per episode, or nothing about any."""
    return value if isinstance(value, list) and len(value) == episodes else [None] * episodes
