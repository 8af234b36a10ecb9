"""Where text and image tokens lie in one prompt, and their multimodal rotary positions.

Shapes: L prompt tokens, M image tokens.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

LAYOUTS_KEPT = 4096
"""Layouts differ by prompt length and views only; a tenant adds a handful."""


@dataclass(frozen=True, slots=True, order=True)
class ImageGrid:
    """Patches of one view, and how many per side the merger joins into one token."""

    rows: int
    columns: int
    merge: int

    @property
    def patches(self) -> int:
        return self.rows * self.columns

    @property
    def tokens(self) -> int:
        return self.patches // self.merge**2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenLayout:
    """Position ids (time, row, column) of every token and the places of the image tokens. Read-only arrays."""

    length: int
    grids: tuple[ImageGrid, ...]
    positions_3L: np.ndarray
    image_index_M: np.ndarray


@lru_cache(maxsize=LAYOUTS_KEPT)
def token_layout(*, head: int, grids: tuple[ImageGrid, ...], tail: int) -> TokenLayout:
    """Layout of ``head`` text tokens, each view between its start and end token, ``tail`` text tokens.

    Positions are the model's own (``get_rope_index``): text counts up in all three rows; an image's tokens carry
    (start, start + row, start + column), and text goes on at start + the longer side.
    """
    positions: list[np.ndarray] = []
    image_index: list[np.ndarray] = []
    place = position = 0

    def add_text(count: int) -> None:
        nonlocal place, position
        positions.append(np.broadcast_to(np.arange(position, position + count), (3, count)))
        place, position = place + count, position + count

    add_text(head)
    for grid in grids:
        add_text(1)
        positions.append(_image_positions(grid, position))
        image_index.append(np.arange(place, place + grid.tokens))
        place += grid.tokens
        position += max(grid.rows, grid.columns) // grid.merge
        add_text(1)
    add_text(tail)
    layout = TokenLayout(
        length=place,
        grids=grids,
        positions_3L=np.concatenate(positions, axis=1),
        image_index_M=np.concatenate(image_index) if image_index else np.zeros(0, np.int64),
    )
    layout.positions_3L.flags.writeable = False
    layout.image_index_M.flags.writeable = False
    return layout


def _image_positions(grid: ImageGrid, start: int) -> np.ndarray:
    """[3, tokens] positions of one view that begins at ``start``."""
    rows, columns = np.indices((grid.rows // grid.merge, grid.columns // grid.merge))
    return start + np.stack([np.zeros(rows.size, np.int64), rows.ravel(), columns.ravel()])
