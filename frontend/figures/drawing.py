"""From a plotly figure to what the page carries: the console's look as its template, texts without markup."""

import json
from typing import TYPE_CHECKING, Any, Literal

from frontend.figures.palette import PALETTE

if TYPE_CHECKING:
    import plotly.graph_objects as go

Height = Literal["s", "plot", "l", "xl"]
_TICKS: dict[Height, int] = {"s": 4, "plot": 5, "l": 6, "xl": 7}  # of the y axis; heights in pixels are the CSS'
_FONT = "system-ui, sans-serif"  # exchanged for the page's own
_OWN_MARKUP = ("<extra>", "</extra>", "<br>")  # what a hover template needs; none of it becomes a style
_SIZE = 11
WIDE, NARROW = "wide", "narrow"  # names of annotations that are shown on large screens, or on phones, only


def figure_json(fig: "go.Figure", *, height: Height = "plot") -> dict[str, Any]:
    """A figure as JSON for ``json_script``: ``data``, ``layout`` and the colours to exchange.

    ``height``: the CSS class of its place, by which the axis gets as many ticks as fit. What the figure says itself
    goes before the look. Every ``<`` and ``&`` in texts is escaped: Plotly would read markup, which becomes style
    attributes that the page's policy refuses, and names are a user's.
    """
    import plotly.io as pio

    told = json.loads(pio.to_json(fig, validate=False))
    layout = told.get("layout", {})
    layout["template"] = _look(height)
    layout.setdefault("uirevision", "figure")
    return {
        "data": _safe(told.get("data", [])),
        "layout": _safe(layout),
        "palette": {colour: name for name, colour in PALETTE.items()},
    }


def _look(height: Height) -> dict[str, Any]:
    """The design language's charts as a template: defaults that a figure may override."""
    axis = {
        "gridcolor": PALETTE["--grid"],
        "zeroline": False,
        "linecolor": PALETTE["--line-2"],
        "tickcolor": PALETTE["--line-2"],
        "tickfont": {"color": PALETTE["--ink-3"], "size": _SIZE},
        "title": {"font": {"color": PALETTE["--ink-3"], "size": _SIZE}, "standoff": 6},
        "automargin": False,
    }
    layout = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": _FONT, "size": _SIZE, "color": PALETTE["--ink-2"]},
        "margin": {"l": 46, "r": 20, "t": 8, "b": 28},
        "showlegend": False,
        "bargap": 0.28,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": PALETTE["--surface"],
            "bordercolor": PALETTE["--line-2"],
            "font": {"size": 12, "color": PALETTE["--ink"]},
        },
        "colorway": [PALETTE[f"--run-{slot}"] for slot in range(1, 11)],
        "xaxis": axis | {"showgrid": False, "showline": True, "ticks": "outside", "ticklen": 4, "nticks": 8},
        "yaxis": axis | {"nticks": _TICKS[height], "rangemode": "tozero"},
        "annotationdefaults": {"showarrow": False, "font": {"size": _SIZE, "color": PALETTE["--ink-3"]}},
    }
    return {"layout": layout, "data": {"scatter": [{"type": "scatter", "line": {"width": 1.6}}]}}


def _safe(value: Any, key: str = "") -> Any:
    """The same with every text escaped; hover templates keep the markup that Plotly's own syntax needs."""
    if isinstance(value, dict):
        return {name: _safe(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_safe(part, key) for part in value]
    if not isinstance(value, str):
        return value
    text = value.replace("&", "&amp;").replace("<", "&lt;")
    if key == "hovertemplate":
        for markup in _OWN_MARKUP:
            text = text.replace(markup.replace("<", "&lt;"), markup)
    return text
