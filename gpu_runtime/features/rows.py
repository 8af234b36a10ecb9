"""Stored form of one frame's features: half precision and, where that rounds, a byte more; single where it overflows.

Half precision alone is what a base that runs in it or in bfloat16 gives anyway. From a single precision base it would
take eleven bits, and standardised features of a scene that hardly moves would show it.

Shapes: L rows of the frame at a tap, D width of the tap.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

Rows = Mapping[str, torch.Tensor]
"""One frame's features: tap -> [L, D]."""

HALF_MAX = 65504.0
HALF_NORMAL_MIN = 2.0**-14
STEPS = 127  # of a fine byte, on either side
DTYPES = {"float16": torch.float16, "float32": torch.float32}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 64
"""Bytes. Every tensor of an entry starts at a multiple of it, in files and in the buffer that is read into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where one tap lies in an entry's bytes. ``fine_start``: of the bytes that refine half precision; None: exact."""

    tap: str
    rows: int
    width: int
    dtype: str
    start: int
    fine_start: int | None = None

    @property
    def size(self) -> int:
        return self.rows * self.width * DTYPES[self.dtype].itemsize

    @property
    def end(self) -> int:
        """Where its last byte ends."""
        return self.start + self.size if self.fine_start is None else self.fine_start + self.rows * self.width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One frame's features in one block of memory."""

    block: torch.Tensor  # uint8
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, rows: Rows, dtype: torch.dtype) -> tuple["Entry", dict[str, torch.Tensor]]:
        """Round once; the entry, and what ``rows`` gives back of it.

        In float16 an entry with a value beyond its range, or not finite, stays float32 as a whole.
        """
        values = {tap: value.detach().to("cpu").float() for tap, value in sorted(rows.items())}
        if dtype is torch.float16:
            entry = cls._blank(values, dtype, fine=dict.fromkeys(values, True))
            found = {part.tap: entry._halve(part, values[part.tap]) for part in entry.parts}
            fitting = {tap: value_LD for tap, value_LD in found.items() if value_LD is not None}
            if len(fitting) == len(found):
                return entry._without_zeros(), fitting
        entry = cls._blank(values, torch.float32, fine={})
        for part in entry.parts:
            entry._plane(part, part.start, torch.float32).copy_(values[part.tap])
        return entry, {tap: value_LD.clone() for tap, value_LD in values.items()}

    @classmethod
    def _blank(cls, shaped: Rows, dtype: torch.dtype, *, fine: Mapping[str, bool]) -> "Entry":
        """Room for taps of these shapes, with fine bytes where it says so."""
        parts, end, name = [], 0, _NAMES[dtype]
        for tap, like_LD in shaped.items():
            start, (rows, width) = end, like_LD.shape
            end = _aligned(start + rows * width * dtype.itemsize)
            fine_start = end if fine.get(tap) else None
            end = end if fine_start is None else _aligned(fine_start + rows * width)
            parts.append(Part(tap=tap, rows=rows, width=width, dtype=name, start=start, fine_start=fine_start))
        return cls(block=torch.zeros(end, dtype=torch.uint8), parts=tuple(parts))

    def _halve(self, part: Part, value_LD: torch.Tensor) -> torch.Tensor | None:
        """Write one tap; returns it as it is found again, None where half precision cannot hold a value."""
        coarse_LD = self._plane(part, part.start, torch.float16).copy_(value_LD).float()
        size_LD = coarse_LD.abs()
        if not bool(size_LD.amax() <= HALF_MAX):  # infinite, or NaN, which is less than nothing
            return None
        step_LD = _step(size_LD)
        fine_LD = value_LD.sub(coarse_LD).div_(step_LD).round_()
        self._fine(part).copy_(fine_LD)
        return coarse_LD.addcmul_(step_LD, fine_LD)

    def _without_zeros(self) -> "Entry":
        """This entry without fine bytes that refine nothing."""
        fine = {part.tap: bool(self._fine(part).count_nonzero()) for part in self.parts}
        if all(fine.values()):
            return self
        halves = {part.tap: self._plane(part, part.start, torch.float16) for part in self.parts}
        smaller = self._blank(halves, torch.float16, fine=fine)
        for part, old in zip(smaller.parts, self.parts, strict=True):
            smaller._plane(part, part.start, torch.float16).copy_(halves[part.tap])
            if part.fine_start is not None:
                smaller._fine(part).copy_(self._fine(old))
        return smaller

    @property
    def size(self) -> int:
        """Bytes, in memory and in a file alike."""
        return self.block.numel()

    @property
    def overflowed(self) -> bool:
        """Kept in single precision, wholly."""
        return any(part.dtype == "float32" for part in self.parts)

    def alone(self) -> "Entry":
        """This entry, in memory that holds nothing else."""
        if self.block.untyped_storage().nbytes() == self.size:
            return self
        return Entry(block=self.block.clone(), parts=self.parts)

    def rows(self, device: torch.device) -> dict[str, torch.Tensor]:
        """float32 tensors on the device, in memory of their own."""
        return {part.tap: self._value(part, device) for part in self.parts}

    def _value(self, part: Part, device: torch.device) -> torch.Tensor:
        value_LD = self._plane(part, part.start, DTYPES[part.dtype]).to(device, torch.float32, copy=True)
        if part.fine_start is not None:
            value_LD.addcmul_(_step(value_LD.abs()), self._fine(part).to(device, torch.float32))
        return value_LD

    def _fine(self, part: Part) -> torch.Tensor:
        """int8: what half precision took, in steps."""
        assert part.fine_start is not None, "asked before"
        return self._plane(part, part.fine_start, torch.int8)

    def _plane(self, part: Part, start: int, dtype: torch.dtype) -> torch.Tensor:
        size = part.rows * part.width * dtype.itemsize
        return self.block[start : start + size].view(dtype).view(part.rows, part.width)


def _step(size_LD: torch.Tensor) -> torch.Tensor:
    """A fine byte's unit, in place of the half precision's absolute values.

    Rounding to half precision takes at most 2^-11 of a number, which is ``STEPS`` of them.
    """
    return size_LD.clamp_min_(HALF_NORMAL_MIN).mul_(2**-11 / STEPS)


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT
