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
    def of(cls, rows: Rows, dtype: torch.dtype) -> "Entry":
        """Round once. In float16 an entry with a value beyond its range, or not finite, stays float32 as a whole."""
        kept = {tap: value.detach().to("cpu").float() for tap, value in sorted(rows.items())}
        if dtype is torch.float16 and any(not _fits_half(value) for value in kept.values()):
            dtype = torch.float32
        parts, planes, end = [], list[tuple[int, torch.Tensor]](), 0
        for tap, value_LD in kept.items():
            start, fine_start = _aligned(end), None
            coarse_LD = value_LD.to(dtype)
            planes.append((start, coarse_LD))
            fine_LD = _fine(value_LD, coarse_LD) if dtype is torch.float16 else None
            if fine_LD is not None:
                fine_start = _aligned(start + coarse_LD.nbytes)
                planes.append((fine_start, fine_LD))
            rows_L, width = value_LD.shape
            parts.append(
                Part(tap=tap, rows=rows_L, width=width, dtype=_NAMES[dtype], start=start, fine_start=fine_start)
            )
            end = parts[-1].end
        block = torch.zeros(_aligned(end), dtype=torch.uint8)
        for start, plane in planes:
            block[start : start + plane.nbytes].view(plane.dtype).view(plane.shape).copy_(plane)
        return cls(block=block, parts=tuple(parts))

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
            value_LD.addcmul_(_step(value_LD), fine_LD)
        return value_LD

    def _plane(self, part: Part, start: int, dtype: torch.dtype) -> torch.Tensor:
        size = part.rows * part.width * dtype.itemsize
        return self.block[start : start + size].view(dtype).view(part.rows, part.width)


def _fine(value_LD: torch.Tensor, half_LD: torch.Tensor) -> torch.Tensor | None:
    """int8: what half precision took away, in steps; None where it took nothing."""
    coarse_LD = half_LD.float()
    missing_LD = value_LD - coarse_LD
    if not bool(missing_LD.any()):
        return None
    return missing_LD.div_(_step(coarse_LD)).round_().to(torch.int8)


def _step(coarse_LD: torch.Tensor) -> torch.Tensor:
    """A fine byte's unit: rounding to half precision takes at most 2^-11 of a number, which is ``STEPS`` of them."""
    return coarse_LD.abs().clamp_min_(HALF_NORMAL_MIN).mul_(2**-11 / STEPS)


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT


def _fits_half(value: torch.Tensor) -> bool:
    """True when every value is finite and within half precision's range; the largest of NaN is NaN, which is not."""
    return bool(value.abs().amax() <= HALF_MAX)
