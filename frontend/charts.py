"""Which curves a job's page draws: one list, read by the template and by the script."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric series. ``color`` is a run slot of the design language; a limit is drawn dotted."""

    series: str
    label: str
    color: int
    dotted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One card. ``scale`` multiplies values (100 for percent); ``smooth`` is off for counts."""

    id: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    smooth: bool = True
    log: bool = False  # may be shown on a logarithmic axis
    scale: float = 1.0
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


SFT_CHARTS = (
    Chart(
        id="loss",
        title="Loss",
        unit="per step, normalised actions",
        curves=(Curve(series="train/loss", label="train", color=1),),
        log=True,
    ),
    Chart(
        id="error",
        title="Held-out action error",
        unit="mean absolute, robot units",
        curves=(
            Curve(series="eval/action_error", label="policy", color=1),
            Curve(series="eval/baseline_error", label="mean action", color=2, dotted=True),
        ),
        smooth=False,
        note="Episodes the policy never trains on. Dotted: always predicting the mean action.",
    ),
    Chart(
        id="group",
        title="Group size",
        unit="jobs per shared forward",
        curves=(Curve(series="service/group_size", label="jobs", color=5),),
        note="How many jobs went through the frozen base together with this one.",
    ),
    Chart(
        id="share",
        title="Device time share",
        unit="% of the step, yours",
        curves=(Curve(series="service/busy_share", label="yours", color=5),),
        scale=100.0,
        note="Measured per group and split exactly; this is what is billed.",
    ),
    Chart(
        id="speed",
        title="Throughput",
        unit="samples per second",
        curves=(Curve(series="train/samples_per_s", label="samples/s", color=3),),
    ),
    Chart(
        id="grad",
        title="Gradient norm",
        unit="before clipping",
        curves=(Curve(series="train/grad_norm", label="norm", color=4),),
        log=True,
    ),
)
