"""Success over policy versions as figures: a dot with its Wilson 95 % interval for each evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend.evaluations import Rate
from frontend.figures import PALETTE, figure_json, run_colour
from frontend.measured import Measured, rate_of, tasks_of

TASKS_DRAWN = 5  # each on its own; of more, only all together
MEASURES = {"once": "Success once", "at_end": "Success at end"}
_VERSIONS_SINGLY = 8  # up to so many have a tick each: there is no half version
_SLOTS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessFigure:
    """``words`` say in short what is drawn, for those who do not see it."""

    id: str
    title: str
    words: str
    json: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dot:
    version: int
    rate: Rate
    told: str


def success_figures(found: Sequence[Measured]) -> tuple[SuccessFigure, ...]:
    """One per measure; none where no evaluation has a result."""
    figures = (_figure(found, measure, title) for measure, title in MEASURES.items())
    return tuple(figure for figure in figures if figure is not None)


def _figure(found: Sequence[Measured], measure: str, title: str) -> SuccessFigure | None:
    tasks = tasks_of(found)
    names = tasks if len(tasks) <= TASKS_DRAWN else ("",)
    lines = [(name, _dots(found, name, measure)) for name in names]
    lines = [(name, dots) for name, dots in lines if dots]
    if not lines:
        return None
    return SuccessFigure(
        id=f"success-{measure.replace('_', '-')}",
        title=title,
        words=f"{title} over policy versions. " + " ".join(_words(name, dots) for name, dots in lines),
        json=_drawn(lines, start=any(own.is_start for own in found)),
    )


def _dots(found: Sequence[Measured], task: str, measure: str) -> list[_Dot]:
    """By version, the newest evaluation of each last; the policy the job started from is at 0.

    ``found``: the newest first. ``task``: empty for all together.
    """
    dots = []
    for own in reversed(found):
        rate = rate_of(own, task, measure) if task else _overall(own, measure)
        if rate is None or rate.percent is None:
            continue
        interval = f"{rate.percent:.1f} %, 95 % interval {rate.low:.1f}–{rate.high:.1f}"
        told = (
            f"{own.version_word}: {interval}, {rate.successes} of {rate.episodes}, J-{own.job.number} {own.job.name}"
        )
        dots.append(_Dot(version=0 if own.is_start else own.policy.policy_version, rate=rate, told=told))
    return sorted(dots, key=lambda dot: dot.version)


def _overall(own: Measured, measure: str) -> Rate | None:
    rate: Rate | None = getattr(own.overall, measure) if own.overall else None
    return rate if rate and rate.percent is not None else None


def _words(name: str, dots: list[_Dot]) -> str:
    return f"{name or 'All tasks'}: {len(dots)} evaluation{'' if len(dots) == 1 else 's'}, the last {dots[-1].told}."


def _drawn(lines: list[tuple[str, list[_Dot]]], *, start: bool) -> dict[str, Any]:
    import plotly.graph_objects as go

    fig = go.Figure()
    for slot, (name, dots) in zip(_SLOTS, lines, strict=False):
        fig.add_trace(_way(go, slot, dots))
        fig.add_trace(_trace(go, slot, dots))
        if len(lines) > 1:
            fig.add_annotation(
                x=dots[-1].version, y=dots[-1].rate.percent, text=name, xanchor="left", xshift=10, showarrow=False,
                font={"color": run_colour(slot)},
            )  # fmt: skip
    last = max((dot.version for _, dots in lines for dot in dots), default=1) or 1
    if start:
        first = min((dot.rate.percent or 0.0 for _, dots in lines for dot in dots if dot.version == 0), default=0.0)
        fig.add_annotation(x=0, y=first, text="start", xanchor="left", xshift=8, showarrow=False)
    fig.update_layout(
        margin={"l": 46, "r": 24 if len(lines) == 1 else 120, "t": 10, "b": 40},
        xaxis={"title": {"text": "policy version"}, "range": [-0.05 * last, 1.06 * last], "tickformat": ",d"}
        | ({"dtick": 1} if last <= _VERSIONS_SINGLY else {}),
        yaxis={"range": [0, 104], "ticksuffix": "\u00a0%", "dtick": 25},
    )
    return figure_json(fig, height="l")


def _way(go: Any, slot: int, dots: list[_Dot]) -> Any:
    """The line from version to version, through the newest evaluation of each."""
    newest = {dot.version: dot.rate.percent for dot in dots}
    return go.Scatter(
        x=list(newest),
        y=list(newest.values()),
        mode="lines",
        line={"color": run_colour(slot), "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )


def _trace(go: Any, slot: int, dots: list[_Dot]) -> Any:
    percents = [dot.rate.percent or 0.0 for dot in dots]
    highs = [dot.rate.high or 0.0 for dot in dots]
    lows = [dot.rate.low or 0.0 for dot in dots]
    return go.Scatter(
        x=[dot.version for dot in dots],
        y=percents,
        mode="markers",
        marker={"color": run_colour(slot), "size": 8, "line": {"color": PALETTE["--surface"], "width": 1}},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [high - own for high, own in zip(highs, percents, strict=True)],
            "arrayminus": [own - low for low, own in zip(lows, percents, strict=True)],
            "color": run_colour(slot),
            "thickness": 1.4,
            "width": 4,
        },
        customdata=[dot.told for dot in dots],
        hovertemplate="%{customdata}<extra></extra>",
    )
