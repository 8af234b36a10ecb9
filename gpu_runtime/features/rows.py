"""Stored form of one frame's features: half precision, or single where half would overflow.

Shapes: L rows of the frame at a tap, D width of the tap.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

Rows = Mapping[str, torch.Tensor]
"""One frame's features: tap -> [L, D]."""

HALF_MAX = 65504.0
DTYPES = {"float16": torch.float16, "float32": torch.float32}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 64
"""Bytes. Every tensor of an entry starts at a multiple of it, in files and in the buffer that is read into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where one tap lies in an entry's bytes."""

    tap: str
    rows: int
    width: int
    dtype: str
    start: int

    @property
    def size(self) -> int:
        return self.rows * self.width * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One frame's features in one block of memory."""

    block: torch.Tensor  # uint8
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, rows: Rows, dtype: torch.dtype) -> "Entry":
        """Round once. In float16 an entry with a value beyond its range, or not finite, stays float32 as a whole."""
        kept = {tap: value.detach().to("cpu") for tap, value in sorted(rows.items())}
        if dtype is torch.float16 and any(not _fits_half(value) for value in kept.values()):
            dtype = torch.float32
        parts, start = [], 0
        for tap, value in kept.items():
            part = Part(tap=tap, rows=value.shape[0], width=value.shape[1], dtype=_NAMES[dtype], start=start)
            parts.append(part)
            start += -(-part.size // ALIGNMENT) * ALIGNMENT
        entry = cls(block=torch.zeros(start, dtype=torch.uint8), parts=tuple(parts))
        for part, value in zip(parts, kept.values(), strict=True):
            entry._tensor(part).copy_(value)
        return entry

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
        return {part.tap: self._tensor(part).to(device, torch.float32, copy=True) for part in self.parts}

    def _tensor(self, part: Part) -> torch.Tensor:
        return self.block[part.start : part.start + part.size].view(DTYPES[part.dtype]).view(part.rows, part.width)


def _fits_half(value: torch.Tensor) -> bool:
    """True when every value is finite and within half precision's range; a comparison with NaN is False."""
    return bool((value.abs() <= HALF_MAX).all())
