"""Lines over the last minutes, labelled at their ends, and bars of a distribution: the figures of the runtime page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frontend.figures.palette import PALETTE

if TYPE_CHECKING:
    import plotly.graph_objects as go

_GAP = 7.5  # percent of a percent axis between two labels: they never touch at 264 pixels
_LABELS_WIDTH = 112  # pixels right of the plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line in percent, a value per bucket, oldest first."""

    name: str
    colour: str
    percents: Sequence[float]


def percent_lines(lines: Sequence[Line], *, bucket_s: int) -> "go.Figure":
    """Shares of time over the last minutes, ``now`` at the right. The newest bucket is not over and is left out."""
    import plotly.graph_objects as go

    fig = go.Figure()
    for line in lines:
        shown = list(line.percents)[:-1]
        minutes = [(place - len(shown)) * bucket_s / 60 for place in range(len(shown))]
        tip = "%{y:.1f} %"
        fig.add_scatter(
            x=minutes, y=shown, name=line.name, mode="lines", line={"color": line.colour}, hovertemplate=tip
        )
    whole = -(max((len(line.percents) for line in lines), default=1) - 1) * bucket_s / 60
    ticks = [whole, whole * 2 / 3, whole / 3, 0]
    fig.update_layout(hovermode="x unified", margin_r=_LABELS_WIDTH, annotations=_ends(lines))
    fig.update_xaxes(range=[whole, 0], tickvals=ticks, ticktext=[*(f"{-tick:.0f} min" for tick in ticks[:-1]), "now"])
    fig.update_yaxes(range=[0, 100], dtick=25, ticksuffix=" %")
    return fig


def size_bars(sizes: Mapping[str, Mapping[int, int]], colours: Mapping[str, str], unit: str) -> "go.Figure":
    """For each name the distribution of a size: percent of its own count at every size, side by side."""
    import plotly.graph_objects as go

    fig = go.Figure()
    largest = max((size for counts in sizes.values() for size in counts), default=1)
    for name, counts in sizes.items():
        total = sum(counts.values()) or 1
        xs = list(range(1, largest + 1)) if largest <= 64 else sorted(counts)
        ys = [100 * counts.get(size, 0) / total for size in xs]
        fig.add_bar(x=xs, y=ys, name=name, marker={"color": colours[name]}, hovertemplate="%{y:.1f} %")
    ticks: dict[str, Any] = {"dtick": 1} if largest <= 12 else {}
    fig.update_layout(barmode="group", bargroupgap=0.06, hovermode="x unified", margin={"r": 96, "b": 42})
    fig.update_xaxes(title=unit, range=[0.4, largest + 0.6], **ticks)
    fig.update_yaxes(ticksuffix=" %")
    for place, name in enumerate(sizes):
        _beside(fig, f"■ {name}", colours[name], y=1 - place * 0.12)
    return fig


def balance_bars(seconds: dict[str, float], colours: Mapping[str, str]) -> "go.Figure":
    """Seconds ahead (right) or behind (left) of zero, one bar per name, the first on top."""
    import plotly.graph_objects as go

    names = list(reversed(seconds))
    values = [seconds[name] for name in names]
    reach = max(1.0, *(abs(value) for value in values)) * 1.45
    words = [f"{'+' if value > 0 else '−' if value < 0 else ''}{abs(value):.2f} s" for value in values]
    fig = go.Figure()
    fig.add_bar(
        y=names,
        x=values,
        orientation="h",
        width=0.56,
        marker={"color": [colours[name] for name in names]},
        text=words,
        textposition="outside",
        textfont={"size": 11, "color": PALETTE["--ink-2"]},
        cliponaxis=False,
        hoverinfo="skip",
    )
    fig.update_layout(margin={"l": 84, "r": 20, "t": 8, "b": 28})
    fig.update_xaxes(range=[-reach, reach], ticksuffix=" s", nticks=5)
    fig.update_yaxes(showgrid=False, showline=False, ticks="", tickfont={"color": PALETTE["--ink-2"]})
    zero = {"color": PALETTE["--line-2"], "width": 1}
    fig.add_shape(type="line", x0=0, x1=0, yref="paper", y0=0, y1=1, line=zero)
    return fig


def _ends(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Name and newest value at each line's end, pushed apart."""
    last = [(line.percents[-2] if len(line.percents) > 1 else 0.0, line) for line in lines]
    found: list[dict[str, Any]] = []
    floor = 0.0
    for value, line in sorted(last, key=lambda one: one[0]):
        at = max(value, floor)
        floor = at + _GAP
        found.append(
            {
                "text": f"{line.name} {value:.0f}",
                "font": {"color": line.colour, "size": 11, "weight": 600},
                **{"xref": "paper", "x": 1, "xanchor": "left", "xshift": 6, "yref": "y", "y": at},
                "showarrow": False,
            }
        )
    return found


def _beside(fig: "go.Figure", text: str, colour: str, *, y: float) -> None:
    where = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 6, "yref": "paper", "y": y, "yanchor": "top"}
    fig.add_annotation(text=text, font={"color": colour, "size": 11}, showarrow=False, **where)
