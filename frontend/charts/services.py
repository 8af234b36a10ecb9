"""Charts of what the shared services did for a job: several kinds of jobs have the same ones."""

from frontend.charts.model import Chart, Curve

PREDICTED = Curve(series="service/predict_group_size", label="predict", color=5)
TRAINED = Curve(series="service/group_size", label="train", color=1)


def predict_latency() -> Chart:
    """How long the policy took to answer."""
    return Chart(
        id="predict",
        title="Predict latency, p95",
        unit="ms",
        curves=(Curve(series="service/predict_p95_ms", label="p95", color=2),),
        note="From asking for an action to having it, waiting included.",
    )


def group_size(*, unit: str, note: str, curves: tuple[Curve, ...]) -> Chart:
    """How much of the frozen base's work was shared with others."""
    return Chart(id="group", title="Group size", unit=unit, curves=curves, note=note)


def feature_hits() -> Chart:
    """How many of a step's demonstrated frames the frozen base had seen before."""
    return Chart(
        id="hits",
        title="Stored features",
        unit="share of the step's samples, 0 to 1",
        curves=(Curve(series="service/feature_hits", label="found", color=3),),
        smooth=False,
        note="Samples whose features were kept from an earlier step: no forward, and none is billed.",
    )


def device_share(*, unit: str) -> Chart:
    """The job's part of the device time of the steps it took part in."""
    return Chart(
        id="share",
        title="Device time share",
        unit=unit,
        curves=(Curve(series="service/busy_share", label="yours", color=5),),
        scale=100.0,
        note="Measured per group and split exactly; this is what is billed.",
    )
