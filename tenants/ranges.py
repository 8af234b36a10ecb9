"""Byte ranges (RFC 9110, section 14): which part of a file a player asks for."""

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"^bytes=\s*(\d{0,15})-(\d{0,15})\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Bytes ``first`` to ``last``, both included."""

    first: int
    last: int

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    def content_range(self, size: int) -> str:
        return f"bytes {self.first}-{self.last}/{size}"


class Unsatisfiable(Exception):
    """No byte of the file lies in the range asked for."""


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """The one range asked for of ``size`` bytes; None: send everything.

    Other units, several ranges and malformed headers may be ignored, and are. Raises Unsatisfiable.
    """
    found = _ONE_RANGE.match(header or "")
    if found is None or (not found[1] and not found[2]):
        return None
    if not found[1]:  # the last n bytes
        length = min(int(found[2]), size)
        if length == 0:
            raise Unsatisfiable
        return ByteRange(first=size - length, last=size - 1)
    first, last = int(found[1]), int(found[2]) if found[2] else size - 1
    if found[2] and last < first:
        return None
    if first >= size:
        raise Unsatisfiable
    return ByteRange(first=first, last=min(last, size - 1))
