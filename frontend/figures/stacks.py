"""Stacked bars: money or counts per day or group, one colour per part, named beside the plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

_STEP = 0.085  # of the plot's height, between two names
_NAMES_WIDTH = 116  # pixels right of the plot
_LONGEST = 14  # characters of a name beside the plot; the hover text has all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One colour of the stack: a value for every x, in the unit of the axis."""

    name: str
    colour: str
    values: Sequence[float]


def stacked_bars(x: Sequence[str | int], parts: Sequence[Part], *, prefix: str = "", suffix: str = "") -> "go.Figure":
    """Bars of ``parts`` on each other, the first at the bottom. ``prefix`` and ``suffix``: the unit, on every tick."""
    import plotly.graph_objects as go

    bars = [
        go.Bar(
            x=list(x),
            y=list(part.values),
            name=part.name,
            marker={"color": part.colour},
            hovertemplate=f"{prefix}%{{y:,.2f}}{suffix}",
        )
        for part in parts
    ]
    fig = go.Figure(bars)
    fig.update_layout(
        barmode="stack",
        hovermode="x unified",
        margin={"l": 46, "r": _NAMES_WIDTH if parts else 20, "t": 8, "b": 28},
        yaxis={"tickprefix": prefix, "ticksuffix": suffix},
        annotations=_names(parts),
    )
    return fig


def _names(parts: Sequence[Part]) -> list[dict[str, object]]:
    """What each colour is, beside the plot in the order of the stack."""
    return [
        {
            "text": f"■ {_short(part.name)}",
            "font": {"color": part.colour, "size": 11},
            **{"xref": "paper", "x": 1, "xanchor": "left", "xshift": 10},
            **{"yref": "paper", "y": 0.5 + (place + 1 - len(parts) / 2) * _STEP, "yanchor": "top"},
        }
        for place, part in enumerate(parts)
    ]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
