"""How curves are decimated: aligned buckets of steps that keep the last value and both extremes, and can be merged.

A bucket of width w and number n holds the steps from n*w to (n+1)*w - 1. Widths are powers of two, so a wider bucket
is always made of whole narrower ones, and merging those gives what decimating the points themselves would.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

WIDTHS = (8, 32, 128, 512, 2048, 8192, 32768)  # that are kept in the database, steps


class Bucket(NamedTuple):
    """Points of neighbouring steps; values are None where nothing is finite.

    A tuple, not a dataclass: millions of them are read and merged. ``special`` is "nan", "inf", "-inf" or "".
    """

    points: int
    last_step: int
    last_at: datetime
    last: float | None
    low: float | None
    high: float | None
    special: str


class Span(NamedTuple):
    """Buckets of one width with numbers from ``first`` up to, not including, ``stop``. Width 1: the points."""

    width: int
    first: int
    stop: int


def bucket_of(step: int, at: datetime, value: float | None, special: str) -> Bucket:
    """One point."""
    return Bucket(1, step, at, value, value, value, special)


def merged(parts: Sequence[Bucket]) -> Bucket:
    """One bucket of several, in any order."""
    if len(parts) == 1:
        return parts[0]
    newest = max(parts, key=lambda part: part.last_step)
    return Bucket(
        sum(part.points for part in parts),
        newest.last_step,
        newest.last_at,
        newest.last,
        min((part.low for part in parts if part.low is not None), default=None),
        max((part.high for part in parts if part.high is not None), default=None),
        max(part.special for part in parts),
    )


def by_width(parts: Iterable[Bucket], width: int) -> dict[int, Bucket]:
    """Narrower buckets put together, by number, in the order of steps."""
    groups: defaultdict[int, list[Bucket]] = defaultdict(list)
    for part in parts:
        groups[part.last_step // width].append(part)
    return {number: merged(groups[number]) for number in sorted(groups)}


def width_for(low: int, high: int, *, most: int) -> int:
    """The smallest width at which the steps from ``low`` to ``high`` lie in no more than ``most`` buckets."""
    width = 1
    while high // width - low // width + 1 > most:
        width *= 2
    return width


def stored_width(width: int) -> int:
    """The widest kept buckets that buckets of ``width`` can be made of; 1: only the points will do."""
    return max((kept for kept in WIDTHS if kept <= width), default=1)


def cover(start: int, stop: int, *, width: int) -> list[Span]:
    """The steps from ``start`` up to ``stop`` as few spans, none wider than ``width``, in the order of steps."""
    widths = [kept for kept in reversed(WIDTHS) if kept <= width]
    return _cover(start, stop, widths)


def _cover(start: int, stop: int, widths: Sequence[int]) -> list[Span]:
    if start >= stop:
        return []
    if not widths:
        return [Span(1, start, stop)]
    width, narrower = widths[0], widths[1:]
    first, end = -(-start // width), stop // width
    if first >= end:
        return _cover(start, stop, narrower)
    inner = Span(width, first, end)
    return [*_cover(start, first * width, narrower), inner, *_cover(end * width, stop, narrower)]
