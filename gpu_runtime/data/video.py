"""Decode video frames exactly by timestamp, sequentially, one frame in memory at a time.

Only the mp4 demuxer is opened: content can not select a format that refers to other files.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import existing_file

TOLERANCE_S = 1e-4  # LeRobot's tolerance_s
PIXELS_MAX = 2**25  # of one decoded frame


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFacts:
    """What the container really holds, from its packets (nothing is decoded)."""

    height: int
    width: int
    times_s: np.ndarray  # of every frame, ascending


def _checked_stream(container: InputContainer, relative: str) -> VideoStream:
    """The first video stream, if it has a known codec and a size that fits in memory."""
    streams = [stream for stream in container.streams.video if stream.codec_context is not None]
    if not streams or not streams[0].time_base:
        raise DatasetError("video_unreadable", f"{relative} has no video stream of a known codec", file=relative)
    height, width = streams[0].height, streams[0].width
    if not 0 < width * height <= PIXELS_MAX:
        raise DatasetError(
            "video_unreadable",
            f"{relative} has frames of {height}x{width} (height x width); at most {PIXELS_MAX} pixels are allowed",
            file=relative,
        )
    return streams[0]


@contextmanager
def open_video(root: Path, relative: str) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The container and its video stream; every FFmpeg failure inside becomes a DatasetError naming the file."""
    path = existing_file(root, relative)
    options = {"protocol_whitelist": "file"}
    try:
        with av.open(f"file:{path}", format="mp4", options=options, metadata_errors="replace") as container:
            stream = _checked_stream(container, relative)
            stream.codec_context.thread_count = 1
            yield container, stream
    except (av.FFmpegError, OSError, OverflowError) as error:
        raise DatasetError("video_unreadable", f"{relative} cannot be read: {error}", file=relative) from error


def read_video_facts(root: Path, relative: str) -> VideoFacts:
    """Size and frame times of a video, by demuxing only."""
    with open_video(root, relative) as (container, stream):
        tick_s = _tick_s(stream)
        packets = (packet for packet in container.demux(stream) if packet.size and not packet.is_corrupt)
        times = [packet.pts * tick_s for packet in packets if packet.pts is not None]
        return VideoFacts(height=stream.height, width=stream.width, times_s=np.sort(np.asarray(times, np.float64)))


def _tick_s(stream: VideoStream) -> float:
    """Seconds per unit of the container's timestamps."""
    assert stream.time_base is not None  # checked on opening
    return float(stream.time_base)


def _tolerance_s(times_s: Sequence[float], tick_s: float) -> float:
    """LeRobot's tolerance, plus what rounding to the container's tick and to float32 timestamps can add."""
    return TOLERANCE_S + tick_s / 2 + float(np.spacing(np.float32(max(times_s, default=0.0))))


def _frames_from(
    container: InputContainer, stream: VideoStream, start_s: float, tolerance_s: float
) -> Iterator[tuple[float, av.VideoFrame]]:
    """Decoded frames from the key frame at or before ``start_s``; from the start if the index was wrong."""
    tick_s = _tick_s(stream)
    container.seek(max(int(start_s / tick_s), 0), stream=stream, backward=True)
    frames = container.decode(stream)
    first = next(frames, None)
    if first is not None and first.pts is not None and first.pts * tick_s > start_s + tolerance_s:
        container.seek(0, stream=stream, backward=True)
        frames, first = container.decode(stream), None
    for frame in frames if first is None else chain((first,), frames):
        if frame.pts is not None:
            yield frame.pts * tick_s, frame


def decode_at(root: Path, relative: str, times_s: Sequence[float]) -> Iterator[np.ndarray]:
    """RGB uint8 [H, W, 3] at each of the ascending ``times_s``, decoding each frame of the span once.

    Raises DatasetError ``frame_not_at_timestamp`` where the video has no frame within the tolerance of a time.
    """
    if not times_s:
        return
    with open_video(root, relative) as (container, stream):
        tolerance_s = _tolerance_s(times_s, _tick_s(stream))
        wanted = iter(times_s)
        time_s = next(wanted)
        last_s = float("nan")
        for found_s, frame in _frames_from(container, stream, time_s, tolerance_s):
            last_s = found_s
            if found_s < time_s - tolerance_s:
                continue
            if found_s > time_s + tolerance_s:
                break
            if frame.is_corrupt:
                raise DatasetError("frame_corrupt", f"{relative}: damaged at {found_s:.6f} s", file=relative)
            image_HWC = frame.to_ndarray(format="rgb24")
            while abs(found_s - time_s) <= tolerance_s:
                yield image_HWC
                following = next(wanted, None)
                if following is None:
                    return
                time_s = following
        raise DatasetError(
            "frame_not_at_timestamp",
            f"{relative} has no frame at {time_s:.6f} s (tolerance {tolerance_s:.6f} s; the nearest decoded was at "
            f"{last_s:.6f} s)",
            file=relative,
        )
