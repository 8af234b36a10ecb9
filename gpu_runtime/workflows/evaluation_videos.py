"""Videos of episodes: the cameras as the policy saw them, side by side, with words, seed and step below.

Shapes: H height, W width in pixels.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from gpu_runtime.data.recording.video import VideoFile
from gpu_runtime.protocol.schema import Camera

FILM_PIXELS = 128  # of views that are drawn for the film only
_FORESEEN = ("success", "fail")  # outcomes that every episode may have; nobody can wait for an error
UNSEEN = "(the policy saw no picture)"
_VIEW_PIXELS = 224  # smaller views are enlarged by whole factors: every pixel stays visible
_FONT_PIXELS, _LINE_PIXELS, _MARGIN = 12, 16, 4
_PAPER, _INK = (16, 16, 16), (235, 235, 235)


class _Shot(NamedTuple):
    instruction: str
    seen: tuple[np.ndarray, ...]
    step: int
    shown: int  # steps


@dataclass(slots=True)
class Film:
    """What a policy saw at its decisions; each picture is shown for as many steps as it was acted upon.

    ``unseen``: the pictures are for those who watch, the policy acted without them.
    """

    seed: int
    unseen: bool = False
    _shots: list[_Shot] = field(default_factory=list)

    def add(self, instruction: str, seen: Sequence[np.ndarray], *, step: int, shown: int) -> None:
        """``step`` counts those taken before."""
        self._shots.append(_Shot(instruction, tuple(seen), step, shown))

    def write(self, path: Path, *, hz: float, outcome: str) -> None:
        """In real time at the control rate. ``outcome`` is drawn onto the last picture. Raises OSError, ValueError."""
        video: VideoFile | None = None
        try:
            for index, shot in enumerate(self._shots):
                ending = f"  {outcome}" if index == len(self._shots) - 1 else ""
                lines = [shot.instruction, f"seed {self.seed}  step {shot.step}{ending}"]
                picture = draw(shot.seen, [*lines, UNSEEN] if self.unseen else lines)
                if video is None:
                    height, width = picture.shape[:2]
                    video = VideoFile(path, Camera(key="views", height=height, width=width), max(1, round(hz)))
                for _ in range(shot.shown):
                    video.add(picture)
        except BaseException:
            if video is not None:
                video.abort()
                path.unlink(missing_ok=True)
            raise
        if video is not None:
            video.close()


class VideoShelf:
    """Keeps the first ``per_outcome`` episodes of each outcome to end."""

    def __init__(self, folder: Path, per_outcome: int, kept: Iterable[str] = ()) -> None:
        """``kept``: outcomes of the films there are already."""
        self._folder, self._per_outcome = folder, per_outcome
        self._kept = Counter(kept)

    @property
    def wants_more(self) -> bool:
        """Whether an episode that comes to its end may still be kept."""
        return any(self._kept[outcome] < self._per_outcome for outcome in _FORESEEN)

    def place(self, environment: str, seed: int, outcome: str) -> Path | None:
        """Where this episode's video belongs, which counts from now on; None if there are enough of its outcome."""
        if self._kept[outcome] >= self._per_outcome:
            return None
        self._kept[outcome] += 1
        return self._folder / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', environment)}_seed{seed}_{outcome}.mp4"

    def take_back(self, outcome: str) -> None:
        """A film that got a place was not made after all: the next of its outcome may have it."""
        self._kept[outcome] -= 1


def draw(views: Sequence[np.ndarray], lines: Sequence[str]) -> np.ndarray:
    """One picture, uint8 [H, W, 3] of even size as H.264 wants it."""
    enlarged = [_enlarge(view) for view in views]
    height, width = max(view.shape[0] for view in enlarged), sum(view.shape[1] for view in enlarged)
    font = ImageFont.load_default(_FONT_PIXELS)
    rows = [row for line in lines for row in _wrap(line, font, width - 2 * _MARGIN)]
    full_height = height + len(rows) * _LINE_PIXELS + 2 * _MARGIN
    picture = Image.new("RGB", (width + width % 2, full_height + full_height % 2), _PAPER)
    left = 0
    for view in enlarged:
        picture.paste(Image.fromarray(view), (left, 0))
        left += view.shape[1]
    pen = ImageDraw.Draw(picture)
    for index, row in enumerate(rows):
        pen.text((_MARGIN, height + _MARGIN + index * _LINE_PIXELS), row, fill=_INK, font=font)
    return np.asarray(picture)


def _enlarge(view_HWC: np.ndarray) -> np.ndarray:
    factor = max(1, -(-_VIEW_PIXELS // max(view_HWC.shape[:2])))
    return view_HWC.repeat(factor, axis=0).repeat(factor, axis=1)


def _wrap(line: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> list[str]:
    """Rows no wider than ``width``, broken at spaces; a longer word keeps its row."""
    rows = [""]
    for word in line.split(" "):
        longer = f"{rows[-1]} {word}" if rows[-1] else word
        if rows[-1] and font.getlength(longer) > width:
            rows.append(word)
        else:
            rows[-1] = longer
    return rows
