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
        kept = [_whole(value_LD) for value_LD in values.values()]
        if dtype is torch.float16 and None not in (halves := [_halved(value_LD) for value_LD in values.values()]):
            kept = [half for half in halves if half is not None]
        parts, end = [], 0
        for tap, own in zip(values, kept, strict=True):
            start, fine_start = _aligned(end), None
            if own.fine_LD is not None:
                fine_start = _aligned(start + own.coarse_LD.nbytes)
            dtype_name, (rows_L, width) = _NAMES[own.coarse_LD.dtype], own.coarse_LD.shape
            parts.append(Part(tap=tap, rows=rows_L, width=width, dtype=dtype_name, start=start, fine_start=fine_start))
            end = parts[-1].end
        entry = cls(block=torch.zeros(_aligned(end), dtype=torch.uint8), parts=tuple(parts))
        for part, own in zip(parts, kept, strict=True):
            entry._plane(part, part.start, own.coarse_LD.dtype).copy_(own.coarse_LD)
            if part.fine_start is not None and own.fine_LD is not None:
                entry._plane(part, part.fine_start, torch.int8).copy_(own.fine_LD)
        return entry, {tap: own.value_LD for tap, own in zip(values, kept, strict=True)}

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
            fine_LD = self._plane(part, part.fine_start, torch.int8).to(device, torch.float32)
            value_LD.addcmul_(_step(value_LD.abs()), fine_LD)
        return value_LD

    def _plane(self, part: Part, start: int, dtype: torch.dtype) -> torch.Tensor:
        size = part.rows * part.width * dtype.itemsize
        return self.block[start : start + size].view(dtype).view(part.rows, part.width)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """One tap as it is written, and as it is found again. ``fine_LD`` int8: what half precision took, in steps."""

    coarse_LD: torch.Tensor
    fine_LD: torch.Tensor | None
    value_LD: torch.Tensor


def _whole(value_LD: torch.Tensor) -> _Kept:
    return _Kept(coarse_LD=value_LD, fine_LD=None, value_LD=value_LD.clone())


def _halved(value_LD: torch.Tensor) -> _Kept | None:
    """Half precision, and a fine byte where it takes something; None where it cannot hold a value."""
    half_LD = value_LD.half()
    coarse_LD = half_LD.float()
    size_LD = coarse_LD.abs()
    if not bool(size_LD.amax() <= HALF_MAX):  # infinite, or NaN, which is less than nothing
        return None
    step_LD = _step(size_LD)
    fine_LD = value_LD.sub(coarse_LD).div_(step_LD).round_()
    if not bool(fine_LD.any()):
        return _Kept(coarse_LD=half_LD, fine_LD=None, value_LD=coarse_LD)
    return _Kept(coarse_LD=half_LD, fine_LD=fine_LD.to(torch.int8), value_LD=coarse_LD.addcmul_(step_LD, fine_LD))


def _step(size_LD: torch.Tensor) -> torch.Tensor:
    """A fine byte's unit, in place of the half precision's absolute values.

    Rounding to half precision takes at most 2^-11 of a number, which is ``STEPS`` of them.
    """
    return size_LD.clamp_min_(HALF_NORMAL_MIN).mul_(2**-11 / STEPS)


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT
