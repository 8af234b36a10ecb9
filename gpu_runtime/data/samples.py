"""Training samples of one job: the views, state and action chunk of each frame asked for.

Shapes: B samples, H horizon, S state and A action dimensions; images uint8 [B, size, size, 3], upright RGB.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_runtime.data.errors import SelectionMismatch
from gpu_runtime.data.frame_cache import FrameCache
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.sampler import FrameRef
from gpu_runtime.protocol.schema import Camera
from gpu_runtime.protocol.specs import DatasetSelection

__all__ = ["FrameRef", "SampleBatch", "SampleSource"]

CACHE_BYTES_DEFAULT = 512 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleBatch:
    """Raw units. ``mask_BH`` is False past the end of the episode, where the last action repeats."""

    images: tuple[np.ndarray, ...]  # one per view, uint8 [B, size, size, 3]; fewer rows where some were not asked for
    instructions: tuple[str, ...]
    state_BS: np.ndarray | None
    actions_BHA: np.ndarray
    mask_BH: np.ndarray

    def __len__(self) -> int:
        return len(self.instructions)


class SampleSource:
    """A dataset as one job selected it. Raises SelectionMismatch naming both sides of whatever does not match."""

    def __init__(
        self,
        dataset: LeRobotDataset,
        selection: DatasetSelection,
        horizon: int,
        cache_bytes: int = CACHE_BYTES_DEFAULT,
    ) -> None:
        self.dataset, self.selection, self.horizon = dataset, selection, horizon
        self.cameras = _select_cameras(dataset, selection)
        _check_selection(dataset, selection, horizon)
        self._cache = FrameCache(dataset, self.cameras, selection.image_size, cache_bytes)

    def batch(self, refs: Sequence[FrameRef], pictured: Sequence[int] | None = None) -> SampleBatch:
        """The samples of ``refs``, in their order; of images only the rows ``pictured``, None: all of them."""
        if not refs:
            raise ValueError("refs is empty; a batch needs at least one frame")
        rows_BH, mask_BH = self._chunk_rows(refs)
        states = self.dataset.states_NS() if self.selection.use_state else None
        return SampleBatch(
            images=self.views(refs if pictured is None else [refs[row] for row in pictured]),
            instructions=tuple(self.instruction(ref) for ref in refs),
            state_BS=None if states is None else states[rows_BH[:, 0]],
            actions_BHA=self.dataset.actions_NA()[rows_BH],
            mask_BH=mask_BH,
        )

    def views(self, refs: Sequence[FrameRef]) -> tuple[np.ndarray, ...]:
        """The images of ``refs``, uint8 [refs, size, size, 3] of each view."""
        return tuple(self._view(camera, refs) for camera in self.cameras)

    def _chunk_rows(self, refs: Sequence[FrameRef]) -> tuple[np.ndarray, np.ndarray]:
        """Dataset rows int64 [B, H] of each action chunk, held at the episode's last frame, and which are real."""
        spans = [self.dataset.rows(ref.episode) for ref in refs]
        first = np.array([span.start + ref.frame for span, ref in zip(spans, refs, strict=True)])
        last = np.array([span.stop - 1 for span in spans])
        if (first > last).any() or any(ref.frame < 0 for ref in refs):
            worst = next(ref for ref, a, b in zip(refs, first, last, strict=True) if a > b or ref.frame < 0)
            raise IndexError(f"frame {worst.frame} of episode {worst.episode} does not exist")
        rows_BH = first[:, None] + np.arange(self.horizon)
        return np.minimum(rows_BH, last[:, None]), rows_BH <= last[:, None]

    def instruction(self, ref: FrameRef) -> str:
        """The words this job's policy is told at a frame."""
        if self.selection.instruction is not None:
            return self.selection.instruction
        return self.dataset.instruction(ref.episode, ref.frame)

    def _view(self, camera: Camera, refs: Sequence[FrameRef]) -> np.ndarray:
        """One camera's images; frames of one episode are decoded together."""
        by_episode: dict[int, list[int]] = defaultdict(list)
        for ref in refs:
            by_episode[ref.episode].append(ref.frame)
        found = {episode: self._cache.get(camera, episode, frames) for episode, frames in by_episode.items()}
        if not refs:
            return np.empty((0, self.selection.image_size, self.selection.image_size, 3), np.uint8)
        return np.stack([found[ref.episode][ref.frame] for ref in refs])


def _select_cameras(dataset: LeRobotDataset, selection: DatasetSelection) -> tuple[Camera, ...]:
    """The selected views in the order asked, perhaps none; every one must exist, none twice."""
    available = {camera.key: camera for camera in dataset.schema.cameras}
    wanted = selection.cameras if selection.cameras is not None else tuple(available)
    missing = [key for key in wanted if key not in available]
    if missing or len(set(wanted)) != len(wanted):
        raise SelectionMismatch(
            "camera_mismatch",
            f"dataset.cameras is {list(wanted)}; each of the dataset's views may be named once: {list(available)}",
            feature=missing[0] if missing else None,
        )
    return tuple(available[key] for key in wanted)


def _check_selection(dataset: LeRobotDataset, selection: DatasetSelection, horizon: int) -> None:
    schema = dataset.schema
    if not (selection.use_state or _select_cameras(dataset, selection)):
        raise SelectionMismatch(
            "camera_mismatch",
            "dataset.cameras is empty and dataset.use_state false: nothing to act on; allowed: the state, or any of "
            f"the views {[camera.key for camera in schema.cameras]}",
        )
    if selection.action_dim is not None and selection.action_dim != schema.action.dim:
        raise SelectionMismatch(
            "action_dim_mismatch",
            f"dataset.action_dim is {selection.action_dim}; the dataset's {schema.action.key} has {schema.action.dim} "
            f"dimensions: {', '.join(schema.action.names)}",
            feature=schema.action.key,
        )
    if selection.use_state and schema.state is None:
        raise SelectionMismatch("state_mismatch", "dataset.use_state is true, but the dataset has no state: set false")
    longest = max(dataset.lengths)
    if not 1 <= horizon <= longest:
        raise SelectionMismatch(
            "horizon_mismatch",
            f"head.horizon is {horizon}; allowed: 1 to {longest}, the longest episode of the dataset",
        )
