"""Where heads read a backbone, and how deep a forward must run for them.

A text layer's tap is the residual stream that the next layer receives: visual injections (deepstack) included, not
normed. The LAST layer is always read after the final norm, whether it is called ``layer:-1`` or by its number.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class TapKind(StrEnum):
    """Part of the backbone that is read."""

    VISION = "vision"  # patch tokens before the merger, every view's, concatenated
    MERGED = "merged"  # image tokens after the merger, as the text stack receives them
    LAYER = "layer"  # hidden states of every prompt token after one text layer
    QUERY = "query"  # last-layer hidden states at the action-query tokens


IMAGE_TAPS = frozenset({TapKind.VISION, TapKind.MERGED})
"""Taps that have no rows for a sample without a view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """A parsed tap. ``layer`` counts text layers from 0; None where no text layer runs."""

    kind: TapKind
    layer: int | None


def parse_tap(text: str, *, layers: int) -> Tap:
    """Read ``vision``, ``merged``, ``query`` or ``layer:n`` for a text stack of ``layers`` layers.

    Raises ValueError naming the tap and what is allowed.
    """
    if text in (TapKind.VISION, TapKind.MERGED):
        return Tap(kind=TapKind(text), layer=None)
    if text == TapKind.QUERY:
        return Tap(kind=TapKind.QUERY, layer=layers - 1)
    kind, _, number = text.partition(":")
    if kind != TapKind.LAYER or not number.removeprefix("-").isdecimal():
        raise ValueError(f"tap {text!r}: allowed are vision, merged, query and layer:n")
    if not -layers <= int(number) < layers:
        raise ValueError(f"tap {text!r}: the base has {layers} text layers, n must be in [{-layers}, {layers - 1}]")
    return Tap(kind=TapKind.LAYER, layer=int(number) % layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TapPlan:
    """What one forward must produce: the union of its samples' taps."""

    vision: bool
    merged: bool
    layers: frozenset[int]

    @property
    def depth(self) -> int:
        """Text layers to run; 0 when no tap needs the text stack."""
        return max(self.layers, default=-1) + 1


def plan_taps(taps: Collection[Tap]) -> TapPlan:
    """The union of these taps."""
    kinds = {tap.kind for tap in taps}
    return TapPlan(
        vision=TapKind.VISION in kinds,
        merged=TapKind.MERGED in kinds,
        layers=frozenset(tap.layer for tap in taps if tap.layer is not None),
    )
