"""The cameras: files, size, frame times of every episode, and frames that really decode.

Shapes: L frames of one episode; images RGB uint8 [H, W, 3].
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpu_runtime.data.episode import Episode
from gpu_runtime.data.features import ImageShape, image_shape
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.validation.findings import Findings, Place
from gpu_runtime.data.video import TOLERANCE_S, VideoFacts, read_video_facts

DECODE_FRAMES_MAX = 20_000  # of the whole dataset; a larger one is sampled: first, middle and last of each episode
PIXEL_STRIDE = 4


@dataclass(slots=True)
class ChannelMeans:
    """Mean of each channel over the decoded frames, in [0, 1]."""

    total_C: np.ndarray
    frames: int = 0

    def add(self, image_HWC: np.ndarray) -> None:
        self.total_C += image_HWC[::PIXEL_STRIDE, ::PIXEL_STRIDE].mean(axis=(0, 1), dtype=np.float64) / 255
        self.frames += 1

    @property
    def mean_C(self) -> np.ndarray:  # noqa: N802
        return self.total_C / max(self.frames, 1)


def check_views(dataset: LeRobotDataset, findings: Findings, *, decode: bool) -> dict[str, ChannelMeans]:
    """Check every camera; returns the channel means of the frames decoded, none without ``decode``."""
    means = {}
    for camera in dataset.schema.cameras:
        shape = image_shape(dataset.info.features[camera.key])
        if dataset.info.features[camera.key].dtype == "video":
            for file, positions in _by_file(dataset, camera.key).items():
                with findings.guard(file, feature=camera.key, episode=dataset.episodes[positions[0]].index):
                    _check_file(dataset, camera.key, file, positions, shape, findings)
        means[camera.key] = ChannelMeans(np.zeros(3))
        for position, episode in enumerate(dataset.episodes):
            if decode and not findings.is_broken(episode.index, camera.key, "timestamp"):
                with findings.guard(_file_of(episode, camera.key), feature=camera.key, episode=episode.index):
                    _decode(dataset, camera.key, position, shape, means[camera.key], findings)
    return means


def _file_of(episode: Episode, camera: str) -> str:
    return episode.videos[camera].file if camera in episode.videos else episode.data_file


def _by_file(dataset: LeRobotDataset, camera: str) -> dict[str, list[int]]:
    """Episode positions of each existing video file; a missing one is reported with the structure."""
    by_file: dict[str, list[int]] = defaultdict(list)
    for position, episode in enumerate(dataset.episodes):
        if (dataset.root / episode.videos[camera].file).is_file():
            by_file[episode.videos[camera].file].append(position)
    return by_file


def _check_file(
    dataset: LeRobotDataset, camera: str, file: str, positions: list[int], shape: ImageShape, findings: Findings
) -> None:
    facts = read_video_facts(dataset.root, file)
    place: Place = {"file": file, "feature": camera, "episode": dataset.episodes[positions[0]].index}
    if (facts.height, facts.width) != (shape.height, shape.width):
        findings.error(
            "camera_shape",
            f"{camera} is {facts.height}x{facts.width} (height x width); info.json says {shape.height}x{shape.width}",
            **place,
        )
    fps = dataset.info.fps
    usual_s = float(np.median(np.diff(facts.times_s))) if len(facts.times_s) > 1 else 1 / fps
    if abs(usual_s - 1 / fps) > max(2e-3 / fps, TOLERANCE_S):
        findings.error(
            "video_fps",
            f"frames are {usual_s:.6f} s apart ({1 / max(usual_s, 1e-9):.3f} fps), not {fps:g} fps",
            **place,
        )
        return
    claimed = sum(dataset.episodes[position].length for position in positions)
    if len(facts.times_s) > claimed:
        findings.warning("video_longer", f"{len(facts.times_s)} frames; its episodes have {claimed}", **place)
    _check_segments(dataset, camera, positions, findings)
    for position in positions:
        _check_frame_times(dataset, camera, position, facts, findings)


def _check_segments(dataset: LeRobotDataset, camera: str, positions: list[int], findings: Findings) -> None:
    """from/to of the episodes in one file: as long as the episode, and one after the other (lerobot #2401)."""
    end_s = 0.0
    half_frame_s = 0.5 / dataset.info.fps
    ordered = sorted(positions, key=lambda position: dataset.episodes[position].videos[camera].from_s)
    for position in ordered:
        episode = dataset.episodes[position]
        segment = episode.videos[camera]
        if segment.to_s is None:
            continue
        place: Place = {"file": segment.file, "feature": camera, "episode": episode.index}
        length_s = episode.length / dataset.info.fps
        if abs(segment.to_s - segment.from_s - length_s) > half_frame_s:
            findings.error(
                "video_segment",
                f"from {segment.from_s:.4f} to {segment.to_s:.4f} s is not the episode's {length_s:.4f} s",
                **place,
            )
        if segment.from_s < end_s - half_frame_s:
            findings.error(
                "video_segment",
                f"starts at {segment.from_s:.4f} s, before the last one ends at {end_s:.4f} s",
                **place,
            )
        end_s = segment.to_s


def _check_frame_times(
    dataset: LeRobotDataset, camera: str, position: int, facts: VideoFacts, findings: Findings
) -> None:
    """Every frame of the episode has a video frame at its time."""
    episode = dataset.episodes[position]
    segment = episode.videos[camera]
    times_L = segment.from_s + np.arange(episode.length) / dataset.info.fps
    wrong = np.flatnonzero(_distance_s(times_L, facts.times_s) > max(2 * TOLERANCE_S, 1e-2 / dataset.info.fps))
    if wrong.size:
        last_s = float(facts.times_s[-1]) if len(facts.times_s) else -1.0
        findings.error(
            "video_truncated" if times_L[wrong[0]] > last_s else "video_frames_missing",
            f"no video frame at {times_L[wrong[0]]:.4f} s; {len(wrong)} of {episode.length} frames are missing; the "
            f"video has {len(facts.times_s)} frames, the last at {last_s:.4f} s",
            file=segment.file,
            episode=episode.index,
            frame=int(wrong[0]),
            feature=camera,
        )


def _distance_s(times_L: np.ndarray, sorted_s: np.ndarray) -> np.ndarray:
    """Seconds from each time to the nearest of ``sorted_s``; infinite where there is none."""
    padded = np.concatenate([[-np.inf], sorted_s, [np.inf]])
    after = np.searchsorted(padded, times_L)
    return np.minimum(padded[after] - times_L, times_L - padded[after - 1])


def _chosen(dataset: LeRobotDataset, length: int) -> list[int]:
    if dataset.frame_count * len(dataset.schema.cameras) <= DECODE_FRAMES_MAX:
        return list(range(length))
    return sorted({0, length // 2, length - 1}) if length else []


def _decode(
    dataset: LeRobotDataset, camera: str, position: int, shape: ImageShape, means: ChannelMeans, findings: Findings
) -> None:
    episode = dataset.episodes[position]
    images: Iterator[tuple[int, np.ndarray]] = dataset.iter_frames(position, _chosen(dataset, episode.length), camera)
    for frame, image_HWC in images:
        means.add(image_HWC)
        if image_HWC.shape[:2] != (shape.height, shape.width) and camera not in episode.videos:
            findings.error(
                "camera_shape",
                f"{camera} is {image_HWC.shape[0]}x{image_HWC.shape[1]} (height x width); info.json says "
                f"{shape.height}x{shape.width}",
                file=episode.data_file,
                episode=episode.index,
                frame=frame,
                feature=camera,
            )
            return
