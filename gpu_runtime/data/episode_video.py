"""One episode of one camera as an MP4 that every browser plays: frame ``i`` at ``i / fps`` seconds, upright.

What is H.264 already and begins with a key frame is copied; anything else is encoded, at most 640 pixels wide.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.packet import Packet
from PIL import Image

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.recording.video import PIXEL_FORMAT, VideoFile
from gpu_runtime.data.video import open_video
from gpu_runtime.protocol.schema import Camera

SIDE_MAX = 640  # pixels of an encoded view's longer side
KEY_FRAME_INTERVAL = 10  # frames: what a seek decodes at most
_ENCODER_OPTIONS = {"preset": "veryfast", "crf": "21", "bf": "0", "threads": "1"}
_PLAYED_PROFILES = frozenset({"Constrained Baseline", "Baseline", "Main", "High"})


def write_episode_video(dataset: LeRobotDataset, index: int, *, camera: str, to: Path, max_bytes: int) -> None:
    """Write episode ``index`` as ``camera`` saw it to ``to``. Raises DatasetError: not there, or more bytes."""
    position = dataset.positions.get(index)
    if position is None:
        raise DatasetError("episode_missing", f"no episode {index}; there are {len(dataset.episodes)}", episode=index)
    view = next((view for view in dataset.schema.cameras if view.key == camera), None)
    if view is None:
        known = ", ".join(view.key for view in dataset.schema.cameras) or "none"
        raise DatasetError("camera_missing", f"no camera {camera!r}; there are: {known}", feature=camera)
    if view.rotation_deg or not _copied(dataset, position, camera, to):
        _encode(dataset, position, view, to, max_bytes)
    if to.stat().st_size > max_bytes:
        raise _too_large(max_bytes, index, camera)


def _copied(dataset: LeRobotDataset, position: int, camera: str, to: Path) -> bool:
    """Copy the packets of the episode; False if a browser would not show exactly its frames, and in time."""
    episode = dataset.episodes[position]
    segment = episode.videos.get(camera)
    if segment is None:
        return False
    with open_video(dataset.root, segment.file) as (source, stream):
        context = stream.codec_context
        if context.name != "h264" or context.pix_fmt != PIXEL_FORMAT or context.profile not in _PLAYED_PROFILES:
            return False
        assert stream.time_base is not None  # checked on opening
        tick_s = float(stream.time_base)
        begin_s, frame_s = segment.from_s, 1 / dataset.info.fps
        source.seek(max(int(begin_s / tick_s), 0), stream=stream, backward=True)
        end_s = begin_s + (episode.length - 0.5) * frame_s
        packets = list(_packets(source.demux(stream), tick_s, begin_s - 0.5 * frame_s, end_s))
        if len(packets) != episode.length or not packets[0].is_keyframe or not _in_time(packets, tick_s, frame_s):
            return False
        with av.open(str(to), "w", format="mp4", options={"movflags": "+faststart"}) as target:
            copy = target.add_stream_from_template(stream)
            origin = packets[0].pts
            for packet in packets:
                packet.pts -= origin  # type: ignore[operator]  # those without are left out
                packet.dts -= origin  # type: ignore[operator]
                packet.stream = copy
                target.mux(packet)
    return True


def _packets(packets: Iterator[Packet], tick_s: float, begin_s: float, end_s: float) -> Iterator[Packet]:
    """Those shown from ``begin_s`` on and before ``end_s``, in the order they are stored."""
    for packet in packets:
        if packet.pts is None or packet.dts is None:
            continue
        if packet.dts * tick_s >= end_s:
            return
        if begin_s <= packet.pts * tick_s < end_s:
            yield packet


def _in_time(packets: list[Packet], tick_s: float, frame_s: float) -> bool:
    """Whether frame ``i`` is shown at ``i`` frame times, and stored in that order: no frame waits for another."""
    origin = packets[0].pts or 0
    return all(
        packet.pts == packet.dts and abs(((packet.pts or 0) - origin) * tick_s - place * frame_s) < frame_s / 4
        for place, packet in enumerate(packets)
    )


def _encode(dataset: LeRobotDataset, position: int, view: Camera, to: Path, max_bytes: int) -> None:
    length, camera = dataset.lengths[position], view.key
    file: VideoFile | None = None
    for _, image_HWC in dataset.iter_frames(position, range(length), camera):
        shown_HWC = _shown(np.rot90(image_HWC, k=view.rotation_deg // 90))
        if file is None:
            height, width = shown_HWC.shape[:2]
            file = VideoFile(
                to,
                Camera(key=camera, height=height, width=width),
                Fraction(dataset.info.fps).limit_denominator(1001),
                options=_ENCODER_OPTIONS,
                key_frame_interval=KEY_FRAME_INTERVAL,
            )
        file.add(shown_HWC)
        if file.size_bytes > max_bytes:
            file.abort()
            raise _too_large(max_bytes, dataset.episodes[position].index, camera)
    if file is None:
        index = dataset.episodes[position].index
        raise DatasetError("episode_empty", f"episode {index} has no frame", episode=index)
    file.close()


def _shown(image_HWC: np.ndarray) -> np.ndarray:
    """Not wider or higher than `SIDE_MAX`, and of even height and width, which H.264 needs."""
    height, width = image_HWC.shape[:2]
    scale = min(1.0, SIDE_MAX / max(height, width))
    size = _even(width * scale), _even(height * scale)
    if size == (width, height):
        return np.ascontiguousarray(image_HWC)
    return np.asarray(Image.fromarray(np.ascontiguousarray(image_HWC)).resize(size, Image.Resampling.BILINEAR))


def _even(side: float) -> int:
    return max(2, int(side) // 2 * 2)


def _too_large(max_bytes: int, index: int, camera: str) -> DatasetError:
    message = f"the video of episode {index} has more than {max_bytes} bytes"
    return DatasetError("video_too_large", message, episode=index, feature=camera)
