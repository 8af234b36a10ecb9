"""What would become of the specification in the form: cost, hold, place in line, and everything that is refused."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from frontend.forms.refused import Placed, placed
from frontend.refusals import Refusal, refusal_of
from frontend.templatetags.console import METER_WORDS
from jobs.services.estimates.estimate import Estimate, EstimateLine, Figure
from jobs.services.estimates.forecast import Forecast, job_forecast
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant
from tenants.quotas.limits import limits_read
from tenants.quotas.models import Resource
from tenants.quotas.usage import used_of

_IN_LINE = (
    (Resource.RUNNING_JOBS, "running jobs"),
    (Resource.SLOTS, "training slots"),
    (Resource.ENV_SEATS, "environment seats"),
)
_WAITS = {
    "tenant_paused": "your tenant is paused",
    "quota_running_jobs": "all places for running jobs are in use",
    "quota_slots": "all places for training are in use",
    "quota_env_seats": "too few environment seats are free",
}
_NBSP = "\u00a0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One meter of the estimate in words; ``low`` and ``high``: money, None where it is unknown."""

    name: str
    quantity: str
    basis: str
    low: Decimal | None
    high: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """``used`` of ``limit`` that running jobs take, in words."""

    words: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``forecast``: None while the specification itself is refused, for which ``refusal`` says why.

    ``cap``: money at which the job stops, None without one; ``cap_permille``: the high end of the cost against it.
    """

    forecast: Forecast | None
    refusal: Refusal | None
    places: Placed
    rows: tuple[Row, ...] = ()
    cap: Decimal | None = None
    in_use: tuple[Wait, ...] = ()

    @property
    def estimate(self) -> Estimate | None:
        return None if self.forecast is None else self.forecast.estimate

    @property
    def wait_words(self) -> str:
        """Empty: it would start at once."""
        reason = self.forecast.reason if self.forecast else ""
        return _WAITS.get(reason, reason.replace("_", " "))

    @property
    def cap_percent(self) -> int:
        """The high end of the known cost in percent of the cap, at most 100."""
        if not self.cap or self.estimate is None:
            return 0
        return min(100, round(self.estimate.cost.high / self.cap * 100))

    @property
    def faults(self) -> int:
        """How many things have to change before it can be submitted."""
        own = len(self.refusal.fields) or 1 if self.refusal else 0
        return own + (len(self.forecast.refusals) if self.forecast else 0)


def judge(*, tenant: Tenant, actor: Actor, spec: Any, names: Collection[str]) -> Judged:
    """Ask the same code as POST /jobs/estimate. ``names``: the fields of the page, for refusals to stand beside."""
    try:
        forecast = job_forecast(tenant=tenant, actor=actor, spec=spec)
    except ApplicationError as error:
        refusal = refusal_of(error)
        return Judged(forecast=None, refusal=refusal, places=placed(refusal.fields, names))
    cap = (spec.get("budget") or {}).get("max_cost")
    beside = {one.pointer: one.detail for refused in forecast.refusals for one in refused.errors}
    return Judged(
        forecast=forecast,
        refusal=None,
        places=placed(beside, names),
        rows=tuple(_row(line) for line in forecast.estimate.lines),
        cap=None if cap is None else Decimal(cap),
        in_use=tuple(_in_use(tenant)),
    )


def _row(line: EstimateLine) -> Row:
    figure = line.figure
    return Row(
        name=METER_WORDS.get(figure.meter, str(figure.meter)),
        quantity=_quantity(figure),
        basis=figure.basis,
        low=line.cost.low if line.cost else None,
        high=line.cost.high if line.cost else None,
    )


def _quantity(figure: Figure) -> str:
    """``12,800``, ``3.1–4.0 s``; empty where it is unknown."""
    if figure.low is None or figure.high is None:
        return ""
    is_time = figure.meter.value.endswith("compute_us")
    ends = dict.fromkeys(_time(end) if is_time else f"{end:,}" for end in (figure.low, figure.high))
    return "–".join(ends) + (f"{_NBSP}s" if is_time else "")


def _time(us: int) -> str:
    """Seconds."""
    return f"{us / 1e6:,.1f}" if us < 100_000_000 else f"{us / 1e6:,.0f}"


def _in_use(tenant: Tenant) -> Iterator[Wait]:
    """Limits on what runs at once, as far as there are any."""
    limits, used = limits_read(tenant), used_of(tenant)[None]
    for resource, words in _IN_LINE:
        limit = limits.of_tenant(resource)
        if limit is not None:
            yield Wait(words=words, used=used.get(resource, 0), limit=limit)
