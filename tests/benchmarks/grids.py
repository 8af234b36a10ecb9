"""The cells that are measured: how many tenants, how large a batch."""

from dataclasses import dataclass

TINY, SMALL = "tiny-qwen3-vl", "small-qwen3-vl"
TENANTS, BATCHES = (2, 4, 8, 16), (1, 2, 4, 8)
FEW_TENANTS, FEW_BATCHES = (2, 8), (1, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """``tenants`` jobs of ``batch`` samples each."""

    tenants: int
    batch: int

    @property
    def samples(self) -> int:
        return self.tenants * self.batch

    def __str__(self) -> str:
        return f"{self.tenants}x{self.batch}"


MAIN_CELL = Cell(tenants=8, batch=4)


def grid(base: str, *, quick: bool) -> tuple[Cell, ...]:
    """Every cell on the tiny base; a few on larger ones and when it must be quick."""
    tenants, batches = (FEW_TENANTS, FEW_BATCHES) if quick or base != TINY else (TENANTS, BATCHES)
    return tuple(Cell(tenants=count, batch=batch) for count in tenants for batch in batches)


def turns(cell: Cell, *, samples: int, least: int, most: int) -> int:
    """Timed turns of each side: fewer for larger cells, so that every cell sees about ``samples`` samples."""
    return min(most, max(least, samples // cell.samples))
