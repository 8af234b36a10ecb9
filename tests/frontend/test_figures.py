"""Figures that are not live: one palette for both themes, texts without markup, numbers that survive the way."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from django.utils.html import json_script

from frontend.figures import PALETTE, faded, figure_json, meter_colour, run_colour, service_colour
from frontend.figures.lines import Line, balance_bars, percent_lines, size_bars
from frontend.figures.stacks import Part, stacked_bars
from tenants.billing.models import Meter

CSS = (Path(__file__).parents[2] / "frontend/static/console/css/console.css").read_text()
EVIL = "<b style=color:red>J&amp;J</b><img src=x onerror=alert(1)>"


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a figure with the name of its key."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from texts(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part, key)
    elif isinstance(value, str):
        yield key, value


def colours(told: dict[str, Any]) -> Iterator[str]:
    for key, text in texts({"data": told["data"], "layout": told["layout"]}):
        if "color" in key:
            yield text


def figures() -> dict[str, go.Figure]:
    service = {name: service_colour(name) for name in ("training", "inference")}
    return {
        "stack": stacked_bars([1, 2], [Part(name="Training", colour=meter_colour("train.samples"), values=[1, 2])]),
        "lines": percent_lines(
            [Line(name=name, colour=colour, percents=[1, 2, 3]) for name, colour in service.items()], bucket_s=15
        ),
        "sizes": size_bars({"training": {1: 3, 2: 1}, "inference": {}}, service, "jobs"),
        "balance": balance_bars({"training": 1.5, "inference": -0.25}, service),
    }


@pytest.mark.parametrize("name", PALETTE)
def test_the_palette_is_the_light_theme_of_the_css(name: str) -> None:
    light = CSS[: CSS.index("prefers-color-scheme: dark")]
    found = re.search(rf"{re.escape(name)}: (#[0-9A-Fa-f]{{6}})", light)
    assert found is not None
    assert found.group(1) == PALETTE[name]


def test_no_two_variables_share_a_colour_so_that_each_can_be_exchanged() -> None:
    assert len(set(PALETTE.values())) == len(PALETTE)
    assert all(colour == colour.upper() for colour in PALETTE.values())


@pytest.mark.parametrize("name", figures())
def test_every_colour_of_a_figure_is_exchanged_or_transparent(name: str) -> None:
    told = figure_json(figures()[name])
    assert set(colours(told)) <= {*PALETTE.values(), "rgba(0,0,0,0)"}
    assert {told["palette"][colour] for colour in PALETTE.values()} == set(PALETTE)


def test_a_colour_seen_through_can_be_exchanged_too() -> None:
    assert faded(run_colour(1), 0.24) == "rgba(52,90,231,0.24)"
    with pytest.raises(ValueError, match="palette"):
        faded("#123456", 0.5)


def test_markup_in_any_text_is_escaped_and_the_page_carries_no_tag() -> None:
    fig = stacked_bars([EVIL], [Part(name=EVIL, colour=PALETTE["--ink"], values=[1.0])])
    fig.update_layout(title=EVIL, annotations=[{"text": EVIL}])
    fig.add_scatter(x=[EVIL], y=[1], text=[EVIL], hovertemplate=f"{EVIL}<br>%{{y}}<extra></extra>")
    told = figure_json(fig)
    for key, text in texts(told):
        left = text.replace("<br>", "").replace("<extra></extra>", "") if key == "hovertemplate" else text
        assert "<" not in left
    assert "&lt;b style=color:red>J&amp;amp;J" in told["layout"]["title"]["text"]
    assert told["data"][-1]["hovertemplate"].endswith("<br>%{y}<extra></extra>")
    assert "<img" not in json_script(told, "fig-x")


def test_numbers_arrive_as_they_were_and_what_is_no_number_is_a_gap() -> None:
    values = [0.1, 1e-12, 123456789.125, float("nan")]
    told = json.loads(json.dumps(figure_json(go.Figure(go.Scatter(x=[1, 2, 3, 4], y=values)))))
    assert told["data"][0]["y"] == [*values[:3], None]


def test_what_a_figure_says_itself_goes_before_the_look() -> None:
    told = figure_json(go.Figure(layout={"margin": {"l": 80}, "yaxis": {"nticks": 3}}), height="l")
    assert told["layout"]["margin"] == {"l": 80}
    assert told["layout"]["yaxis"] == {"nticks": 3}
    assert told["layout"]["template"]["layout"]["margin"]["l"] == 46


@pytest.mark.parametrize("meter", Meter.values)
def test_every_meter_has_its_services_colour(meter: str) -> None:
    assert meter_colour(meter) in {PALETTE[f"--svc-{slot}"] for slot in range(1, 5)}


def test_labels_at_the_ends_of_lines_keep_their_distance() -> None:
    lines = [Line(name=str(place), colour=PALETTE["--ink"], percents=[50, 50, 50]) for place in range(4)]
    heights = sorted(note["y"] for note in figure_json(percent_lines(lines, bucket_s=15))["layout"]["annotations"])
    assert all(high - low >= 7.4 for low, high in pairwise(heights))


def test_a_distribution_adds_up_to_a_hundred_percent() -> None:
    bars = size_bars({"training": {1: 3, 4: 1}}, {"training": PALETTE["--svc-1"]}, "jobs").data[0]
    assert list(bars.y) == [75.0, 0.0, 0.0, 25.0]
