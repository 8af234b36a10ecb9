"""Frames already turned and resized, least recently used first out, bounded in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from gpu_runtime.data.images import fit_image
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.protocol.schema import Camera


class FrameCache:
    """Views of one dataset at one size.

    Where all frames of ``cameras`` fit, a first miss decodes its whole episode, so every frame is decoded once;
    else only the span asked for is decoded, because whole episodes would evict each other.
    """

    def __init__(self, dataset: LeRobotDataset, cameras: Sequence[Camera], size: int, bytes_max: int) -> None:
        self._dataset, self._size, self._bytes_max = dataset, size, bytes_max
        self._frames: OrderedDict[tuple[str, int, int], np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self._frame_bytes = size * size * 3
        self._all_fit = dataset.frame_count * len(cameras) * self._frame_bytes <= bytes_max
        self.decoded = 0  # frames ever decoded, for metrics and tests

    @property
    def bytes(self) -> int:
        return len(self._frames) * self._frame_bytes

    def get(self, camera: Camera, episode: int, frames: Sequence[int]) -> dict[int, np.ndarray]:
        """Upright images uint8 [size, size, 3] by frame."""
        with self._lock:
            found = {
                frame: image for frame in frames if (image := self._touch(camera.key, episode, frame)) is not None
            }
            missing = [frame for frame in frames if frame not in found]
            if missing:
                found |= self._decode(camera, episode, missing)
            return found

    def _touch(self, camera: str, episode: int, frame: int) -> np.ndarray | None:
        key = (camera, episode, frame)
        if key not in self._frames:
            return None
        self._frames.move_to_end(key)
        return self._frames[key]

    def _decode(self, camera: Camera, episode: int, missing: list[int]) -> dict[int, np.ndarray]:
        span = range(self._dataset.episodes[episode].length) if self._all_fit else sorted(set(missing))
        asked, found = set(missing), {}
        for frame, stored in self._dataset.iter_frames(episode, span, camera.key):
            image = fit_image(stored, size=self._size, rotation_deg=camera.rotation_deg)
            image.flags.writeable = False
            self.decoded += 1
            self._put((camera.key, episode, frame), image)
            if frame in asked:
                found[frame] = image
        return found

    def _put(self, key: tuple[str, int, int], image: np.ndarray) -> None:
        self._frames[key] = image
        while self._frames and self.bytes > self._bytes_max:
            self._frames.popitem(last=False)
