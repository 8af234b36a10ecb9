"""H.264 video files that browsers play and samplers seek in.

Quality: constant quantiser 4 in the High profile, so luma is within 4 of 255 levels of what was recorded. Colour is
stored at half the resolution (yuv420p is the one layout every browser decodes): it is exact where 2x2 pixels share
a colour, and smeared at sharp colour edges. Lossless H.264 would need a profile that browsers refuse.
Every second frame is a key frame, so a random frame costs at most two decodes.
"""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import av
import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation

from gpu_runtime.protocol.schema import Camera

CODEC = "h264"
PIXEL_FORMAT = "yuv420p"
KEY_FRAME_INTERVAL = 2
_ENCODER_OPTIONS = {"preset": "veryfast", "qp": "4", "bf": "0", "threads": "1"}
_SMPTE170M = 6  # primaries and transfer of BT.601, as coded in the stream


class VideoFile:
    """One MP4 being written: frame ``i`` is shown at ``i / fps`` seconds, exactly.

    ``options`` and ``key_frame_interval`` are for copies that are only looked at: smaller, slower to seek in.
    """

    def __init__(
        self,
        path: Path,
        camera: Camera,
        fps: int | Fraction,
        *,
        options: Mapping[str, str] = MappingProxyType(_ENCODER_OPTIONS),
        key_frame_interval: int = KEY_FRAME_INTERVAL,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.frames = path, 0
        self._time_base = Fraction(1, fps)
        self._container = av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"})
        self._stream = self._container.add_stream("libx264", rate=fps, options=dict(options))
        self._stream.width, self._stream.height = camera.width, camera.height
        self._stream.pix_fmt = PIXEL_FORMAT
        context = self._stream.codec_context
        context.gop_size = key_frame_interval
        # Written into the stream: a reader that guesses the matrix from the size would shift every colour.
        context.color_range, context.colorspace = ColorRange.MPEG, Colorspace.ITU601
        context.color_primaries = context.color_trc = _SMPTE170M

    @property
    def size_bytes(self) -> int:
        """Bytes on disk so far; the encoder may hold back the last frames."""
        return self.path.stat().st_size if self.path.exists() else 0

    def add(self, image_HWC: np.ndarray) -> None:
        """Append one uint8 RGB image."""
        frame = VideoFrame.from_ndarray(np.ascontiguousarray(image_HWC), format="rgb24").reformat(
            format=PIXEL_FORMAT,
            dst_colorspace=Colorspace.ITU601,
            dst_color_range=ColorRange.MPEG,
            interpolation=Interpolation.AREA,
        )
        frame.pts, frame.time_base = self.frames, self._time_base
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def close(self) -> None:
        """Write what the encoder holds and the index, which goes to the front of the file."""
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def abort(self) -> None:
        """Release the file; its content is worthless."""
        self._container.close()
