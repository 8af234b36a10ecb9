"""Jobs under way, a line each: where they are, the course of their figure, when they will be done."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from frontend.facts import algorithm_word, kind_word, step_word, subject_of
from frontend.state_line import time_left
from jobs.models import Job
from jobs.selectors.glances import glances
from jobs.selectors.pace import Pace, recent_paces
from jobs.states import JobState
from tenants.models import Tenant

SERIES = {
    "sft": "train/loss",
    "rl": "rollout/success_once",
    "evaluation": "eval/success_rate",
    "rollout": "rollout/success_once",
}
_WORDS = {
    "sft": "loss, smoothed",
    "rl": "success once, newest batch",
    "evaluation": "success so far",
    "rollout": "success once",
}
_SMOOTHING = 0.8  # of the loss: weight of what was before
WIDTH, HEIGHT = 100, 24  # of the picture's view box
_POINTS = 80  # of a picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """``spark``: an SVG path within WIDTH x HEIGHT, empty before two values. ``left``: None while nobody can know."""

    job: Job
    about: str
    unit: str
    spark: str
    figure: str
    figure_word: str
    left: timedelta | None


def running_rows(tenant: Tenant, jobs: Sequence[Job], *, now: datetime) -> list[Running]:
    """The same four queries for any number of jobs."""
    seen, paces = glances(tenant, jobs, SERIES), recent_paces(tenant, jobs, now=now)
    return [_row(job, seen.get(job.pk, ()), paces.get(job.pk)) for job in jobs]


def soonest_end(rows: Sequence[Running]) -> timedelta | None:
    """When the first of these will be done; None while that is known of none."""
    return min((row.left for row in rows if row.left is not None), default=None)


def about(job: Job) -> str:
    """``RL, PPO · tiny-qwen3-vl, mlp head · Reach``."""
    algorithm = algorithm_word(job.spec)
    kind = f"{kind_word(job.kind)}, {algorithm}" if algorithm else kind_word(job.kind)
    return " · ".join([kind, f"{job.base_model}, {job.head} head", subject_of(job)[0]])


def _row(job: Job, values: tuple[float, ...], pace: Pace | None) -> Running:
    if job.kind == "sft":
        values = smoothed(values)
    return Running(
        job=job,
        about=about(job),
        unit=step_word(job.kind),
        spark=spark_path(values),
        figure=_figure(job.kind, values[-1]) if values else "",
        figure_word=_WORDS.get(job.kind, ""),
        left=time_left(step=job.step, total=job.total_steps, pace=pace) if job.state == JobState.RUNNING else None,
    )


def _figure(kind: str, value: float) -> str:
    return f"{value:.4g}" if kind == "sft" else f"{value * 100:.1f}\u00a0%"


def smoothed(values: Sequence[float]) -> tuple[float, ...]:
    """The running mean with exponential weights, corrected for its start."""
    told, mean, weight = [], 0.0, 0.0
    for value in values:
        mean, weight = mean * _SMOOTHING + value * (1 - _SMOOTHING), weight * _SMOOTHING + 1 - _SMOOTHING
        told.append(mean / weight)
    return tuple(told)


def spark_path(values: Sequence[float]) -> str:
    """A line through at most _POINTS of the values, the newest among them, over the whole height of the picture."""
    every = max(1, -(-len(values) // _POINTS))
    shown = list(values[::-1][::every])[::-1]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    step, height = WIDTH / (len(shown) - 1), HEIGHT - 2
    points = (
        (place * step, 1 + height * (0.5 if high == low else (high - value) / (high - low)))
        for place, value in enumerate(shown)
    )
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
