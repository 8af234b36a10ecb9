"""Figures that are not live: built with plotly.graph_objects, drawn in both themes by ``js/figures.js``.

A view gives ``figure_json(fig)`` to ``{{ figure|json_script:"fig-x" }}``; the template holds the place:
``<div class="plot" data-figure="fig-x" role="img" aria-label="..."></div>`` and includes
``console/parts/figures.html`` in its ``scripts`` block. Plotly itself is imported when the first figure is made.
"""

from frontend.figures.drawing import NARROW, WIDE, figure_json
from frontend.figures.palette import PALETTE, faded, meter_colour, run_colour, service_colour

__all__ = ["NARROW", "PALETTE", "WIDE", "faded", "figure_json", "meter_colour", "run_colour", "service_colour"]
