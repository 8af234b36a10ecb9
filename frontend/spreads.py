"""Statistics and histograms of a dataset's dimensions, for a table and for figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frontend.figures import PALETTE, faded, figure_json

if TYPE_CHECKING:
    import plotly.graph_objects as go

FIGURES_MAX = 48  # of one vector
FAR = 5.0  # times the range that is scaled to -1..1: a normaliser makes such values that large
_NUMBERS = ("min", "q01", "mean", "std", "q99", "max")
_BOX = (96, 16)  # width and height of the small histogram's coordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A rectangle of a small histogram."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A row: numbers in the order of the table's heads; what the distribution says is None until it is known."""

    name: str
    numbers: list[float]
    bars: list[Bar]
    degenerate: bool
    outside: float | None
    farthest: float | None

    @property
    def is_far(self) -> bool:
        return self.farthest is not None and self.farthest > FAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """One figure and what it says in words."""

    id: str
    name: str
    told: str
    figure: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Action or state."""

    name: str
    title: str
    about: str
    rows: list[Dimension]
    figures: list[Histogram]

    @property
    def hidden(self) -> int:
        return len(self.rows) - len(self.figures)


def groups_of(summary: dict[str, Any], spread: dict[str, Any] | None) -> list[Group]:
    """Action, then state if there is one; without ``spread`` (see `preview.distribution`) only their numbers."""
    about = {"action": f"{summary['schema']['representation'].replace('_', ' ')}, raw units", "state": "raw units"}
    return [
        _group(
            name, about[name], summary["schema"][name]["names"], summary["statistics"][name], (spread or {}).get(name)
        )
        for name in ("action", "state")
        if summary["schema"][name] and summary["statistics"][name]
    ]


def lengths_of(spread: dict[str, Any]) -> Histogram:
    """Episodes by their length."""
    lengths = spread["lengths"]
    starts, width, counts = lengths["starts"], lengths["width"], lengths["counts"]
    told = [f"{start}" if width == 1 else f"{start}–{start + width - 1}" for start in starts]
    fig = _bars(
        [start + (width - 1) / 2 for start in starts], counts, width, told, "%{y} episodes of %{customdata} frames"
    )
    few = len(starts) <= 8
    fig.update_xaxes(tickformat="d", tickvals=starts if few else None, ticktext=told if few else None)
    words = f"Histogram of episode length: {starts[0]} to {starts[-1] + width - 1} frames"
    return Histogram(id="fig-lengths", name="Episode length", told=words, figure=figure_json(fig, height="s"))


def _group(
    name: str, about: str, names: Sequence[str], statistics: dict[str, Any], spread: list[dict[str, Any]] | None
) -> Group:
    numbers = [[statistics[key][place] for key in _NUMBERS] for place in range(len(names))]
    known: Sequence[dict[str, Any] | None] = spread if spread is not None else [None for _ in names]
    return Group(
        name=name,
        title=name.capitalize(),
        about=about,
        rows=[_row(*row) for row in zip(names, numbers, known, strict=True)],
        figures=[
            _histogram(f"fig-{name}-{place}", one, numbers[place])
            for place, one in enumerate((spread or [])[:FIGURES_MAX])
        ],
    )


def _row(name: str, numbers: list[float], spread: dict[str, Any] | None) -> Dimension:
    if spread is None:
        return Dimension(name=name, numbers=numbers, bars=[], degenerate=False, outside=None, farthest=None)
    return Dimension(
        name=name,
        numbers=numbers,
        bars=_small(spread["counts"]),
        degenerate=spread["degenerate"],
        outside=spread["outside"],
        farthest=spread["farthest"],
    )


def _small(counts: Sequence[int]) -> list[Bar]:
    """Bars of one pixel at least, so that a few values are seen; empty bins have none."""
    width, tallest = _BOX[0] / len(counts), max(counts)
    heights = [max(1.0, count / tallest * _BOX[1]) for count in counts]
    return [
        Bar(
            x=round(place * width, 2),
            y=round(_BOX[1] - height, 2),
            width=round(width * 0.86, 2),
            height=round(height, 2),
        )
        for place, (height, count) in enumerate(zip(heights, counts, strict=True))
        if count
    ]


def _histogram(figure_id: str, spread: dict[str, Any], numbers: list[float]) -> Histogram:
    low, high, counts = spread["low"], spread["high"], spread["counts"]
    width = (high - low) / len(counts) or max(abs(low), 1.0) * 0.02
    centres = [low + (place + 0.5) * width if high > low else low for place in range(len(counts))]
    fig = _bars(centres, counts, width, [f"{centre:.4g}" for centre in centres], "%{y} frames near %{customdata}")
    for value, dash in ((numbers[1], "dot"), (numbers[2], "solid"), (numbers[4], "dot")):
        fig.add_vline(x=value, line={"color": PALETTE["--ink-2"], "width": 1, "dash": dash})
    fig.update_layout(margin={"l": 40, "r": 8, "t": 4, "b": 22})
    ends = [low, (low + high) / 2, high] if high > low else [low]
    fig.update_xaxes(tickvals=ends, ticktext=[f"{end:.3g}".replace("-", "−") for end in ends])
    fig.update_yaxes(nticks=3)
    told = f"{spread['name']}: {low:.4g} to {high:.4g}, mean {numbers[2]:.4g}" + (
        ", still" if spread["degenerate"] else ""
    )
    return Histogram(id=figure_id, name=spread["name"], told=told, figure=figure_json(fig, height="s"))


def _bars(x: Sequence[float], counts: Sequence[int], width: float, told: Sequence[str], hover: str) -> "go.Figure":
    import plotly.graph_objects as go

    bars = go.Bar(
        x=list(x),
        y=list(counts),
        width=width * 0.92,
        customdata=list(told),
        marker={"color": faded(PALETTE["--accent"], 0.72)},
        hovertemplate=f"{hover}<extra></extra>",
    )
    return go.Figure(bars)
