"""The colours of figures: the light values of the console's CSS variables, each of one variable only.

A figure is built in light colours. The browser exchanges every one for the value its variable has at that moment, so
one figure is right in both themes. ``css/console.css`` holds the same values; a test compares them.
"""

PALETTE: dict[str, str] = {
    "--ink": "#14191D",
    "--ink-2": "#49545E",
    "--ink-3": "#626D77",
    "--surface": "#FFFFFF",
    "--grid": "#EDF0F2",
    "--line": "#E1E5E8",
    "--line-2": "#C9D0D5",
    "--control": "#7F8A94",
    "--accent": "#2450C8",
    "--succeeded": "#126B3C",
    "--failed": "#AE241C",
    "--cancelling": "#835000",
    "--queued": "#54606C",
    "--dropped": "#773884",
    "--run-1": "#345AE7",
    "--run-2": "#B66327",
    "--run-3": "#5F8E7F",
    "--run-4": "#9E4CA6",
    "--run-5": "#4698DD",
    "--run-6": "#C68617",
    "--run-7": "#5D30AE",
    "--run-8": "#70261B",
    "--run-9": "#6C5611",
    "--run-10": "#5F6D6A",
    "--svc-1": "#0F5C73",
    "--svc-2": "#2B978B",
    "--svc-3": "#8A932A",
    "--svc-4": "#8E6FB8",
}
SERVICE_SLOTS = {"training": 1, "inference": 2, "environment": 3, "storage": 4}
_METER_SLOTS = {"train": 1, "predict": 2, "env": 3, "storage": 4}  # by the part of a meter's code before its dot


def run_colour(slot: int) -> str:
    """The colour of a run's slot (1 to 10). Raises KeyError for any other."""
    return PALETTE[f"--run-{slot}"]


def service_colour(service: str) -> str:
    """The colour of training, inference, environment or storage; grey for one that has none."""
    slot = SERVICE_SLOTS.get(service)
    return PALETTE["--ink-3"] if slot is None else PALETTE[f"--svc-{slot}"]


def meter_slot(meter: str) -> int:
    """Which service a meter is of, as its place among the service colours; 0 for none."""
    return _METER_SLOTS.get(meter.partition(".")[0], 0)


def meter_colour(meter: str) -> str:
    """The colour of the service a meter is of."""
    slot = meter_slot(meter)
    return PALETTE[f"--svc-{slot}"] if slot else PALETTE["--ink-3"]


def faded(colour: str, opacity: float) -> str:
    """A palette colour seen through: ``rgba(...)``, which the browser exchanges too. Raises ValueError for others."""
    if colour not in PALETTE.values():
        raise ValueError(f"{colour!r} is not a colour of the palette")
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"
