"""Charts of a comparison: one per series, a line per job."""

from collections.abc import Iterable
from typing import Any

from frontend.charts.board import board_of
from frontend.charts.model import Chart, Curve
from jobs.models import Job


def overlay_charts(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """What the boards of these jobs' kinds draw, each series once, in the boards' order; for the page's script."""
    charts: dict[str, dict[str, Any]] = {}
    for job in jobs:
        for group in board_of(job.kind).for_spec(job.spec):
            for chart in group.charts:
                for curve in chart.curves:
                    charts.setdefault(curve.series, _chart(chart, curve, group.title))
    return list(charts.values())


def overlay_axes(jobs: Iterable[Job]) -> list[str]:
    """Series that any of these jobs may be drawn over instead of its steps: environment steps."""
    axes = {series: None for job in jobs for series, _ in board_of(job.kind).x_axes if series}
    return list(axes)


def _chart(chart: Chart, curve: Curve, group: str) -> dict[str, Any]:
    alone = len(chart.curves) == 1
    return {
        "series": curve.series,
        "title": chart.title if alone else f"{chart.title}, {curve.label}",
        "unit": chart.unit,
        "group": group,
        "scale": chart.scale,
        "percent": chart.percent,
        "smooth": chart.smooth,
        "log": chart.log,
    }
