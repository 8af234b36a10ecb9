"""Meters in the order of the console, and how tables gather them into columns."""

from collections.abc import Iterable
from dataclasses import dataclass

from frontend.templatetags.billing import units
from tenants.billing.models import COMPUTE_METERS, Meter
from tenants.billing.usage.selectors import CostLine

ORDER = (
    *(Meter.TRAIN_SAMPLES, Meter.PREDICT_CHUNKS, Meter.ENV_STEPS, Meter.STORAGE_BYTE_HOURS),
    *(Meter.TRAIN_COMPUTE_US, Meter.PREDICT_COMPUTE_US, Meter.ENV_COMPUTE_US),
)
_TITLES = {
    Meter.TRAIN_SAMPLES: "Training samples",
    Meter.PREDICT_CHUNKS: "Predicted chunks",
    Meter.ENV_STEPS: "Environment steps",
    Meter.STORAGE_BYTE_HOURS: "Storage",
    Meter.TRAIN_COMPUTE_US: "Training time",
    Meter.PREDICT_COMPUTE_US: "Inference time",
    Meter.ENV_COMPUTE_US: "Environment time",
}
SERVICES = {"train": "Training", "predict": "Inference", "env": "Environment", "storage": "Storage"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of quantities: meters that may be added up, since they share their unit."""

    title: str
    meters: frozenset[Meter]

    def told(self, lines: Iterable[CostLine]) -> str:
        """The quantity in the unit people think in; empty for none."""
        found = [line for line in lines if line.meter in self.meters]
        return units(sum(line.quantity for line in found), found[0].meter) if found else ""


COLUMNS = (
    Column(title="Training samples", meters=frozenset({Meter.TRAIN_SAMPLES})),
    Column(title="Predicted chunks", meters=frozenset({Meter.PREDICT_CHUNKS})),
    Column(title="Environment steps", meters=frozenset({Meter.ENV_STEPS})),
    Column(title="Storage", meters=frozenset({Meter.STORAGE_BYTE_HOURS})),
    Column(title="Measured time", meters=COMPUTE_METERS),
)


def title_of(meter: str) -> str:
    """A meter in words; its code if nobody knows it."""
    return _TITLES[Meter(meter)] if meter in Meter.values else meter


def place(meter: str) -> int:
    """Its place in a table; meters nobody knows come last."""
    return ORDER.index(Meter(meter)) if meter in Meter.values else len(ORDER)
