"""What each job has come to, by its kind: success with its interval, else return; or loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from uuid import UUID

from jobs.models import Job
from jobs.selectors.newest import newest_values
from tenants.models import Tenant

LOSS = "train/loss"
_SUCCESS: dict[str, tuple[str, str, str, str]] = {  # kind -> (rate, episodes behind it, what it is, else this)
    "rl": ("rollout/success_once", "rollout/episodes", "once", "rollout/return"),
    "evaluation": ("eval/success_rate", "eval/counted", "", "eval/return"),
    "rollout": ("rollout/success_once", "rollout/episodes", "once", "rollout/return"),
}
SERIES = tuple({LOSS, *(name for own in _SUCCESS.values() for name in (own[0], own[1], own[3]))})
_Z95 = 1.959964
_NBSP = "\u00a0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``text``: the figure with its unit; ``detail``: interval or what it is; ``value`` and ``metric`` as recorded."""

    text: str
    detail: str
    metric: str
    value: float


def results_of(tenant: Tenant, jobs: Sequence[Job]) -> dict[UUID, Result]:
    """By job; jobs that have told nothing yet are left out. One query."""
    values = newest_values(tenant, jobs, SERIES)
    found = {job.pk: _result(job.kind, values.get(job.pk, {})) for job in jobs}
    return {key: result for key, result in found.items() if result is not None}


def _result(kind: str, values: dict[str, float]) -> Result | None:
    if kind not in _SUCCESS:
        loss = values.get(LOSS)
        return None if loss is None else Result(text=_figure(loss), detail="loss", metric=LOSS, value=loss)
    rate, count, what, otherwise = _SUCCESS[kind]
    if (share := values.get(rate)) is not None:
        detail = ", ".join(part for part in (what, _interval(share, values.get(count))) if part)
        return Result(text=f"{100 * share:.1f}{_NBSP}%", detail=detail, metric=rate, value=share)
    value = values.get(otherwise)
    return None if value is None else Result(text=_figure(value), detail="return", metric=otherwise, value=value)


def _interval(share: float, episodes: float | None) -> str:
    """``67.3–75.2``, the Wilson 95 % interval in percent; empty where nobody said how many episodes there were."""
    if not episodes or not 0 <= share <= 1:
        return ""
    z2 = _Z95**2
    middle = (share + z2 / (2 * episodes)) / (1 + z2 / episodes)
    half = _Z95 * sqrt(share * (1 - share) / episodes + z2 / (4 * episodes**2)) / (1 + z2 / episodes)
    return f"{100 * max(0.0, middle - half):.1f}–{100 * min(1.0, middle + half):.1f}"


def _figure(value: float) -> str:
    """Three significant digits, as many places as they need."""
    if value == 0 or abs(value) >= 1000 or abs(value) < 0.0001:
        return f"{value:.3g}".replace("-", "−")
    places = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3 if abs(value) >= 1 else 4
    return f"{value:.{places}f}".replace("-", "−")
