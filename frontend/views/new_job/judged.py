"""What would become of the specification in the form: cost, hold, place in line, and everything that is refused."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from frontend.forms.refused import NOTHING, Placed, placed
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
class InUse:
    """``used`` of ``limit`` that running jobs take, in words."""

    words: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``forecast``: None while the specification itself is refused.

    ``places``: where on the form the refusals stand. ``cap``: money at which the job stops, None without one.
    """

    forecast: Forecast | None
    places: Placed
    rows: tuple[Row, ...] = ()
    cap: Decimal | None = None
    in_use: tuple[InUse, ...] = ()

    @property
    def estimate(self) -> Estimate | None:
        return None if self.forecast is None else self.forecast.estimate

    @property
    def needed(self) -> list[str]:
        """Fields that only have to be filled in, in the order of the form."""
        return [name for name in self.places.fields if name in self.places.missing]

    @property
    def wrong(self) -> dict[str, str]:
        """The other refused fields with what is wrong."""
        return {name: told for name, told in self.places.fields.items() if name not in self.places.missing}

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
        return self.places.count if self.forecast is None else len(self.forecast.refusals)


def judge(*, tenant: Tenant, actor: Actor, spec: Any, names: Collection[str]) -> Judged:
    """Ask the same code as POST /jobs/estimate. ``names``: the fields of the page, for refusals to stand beside."""
    try:
        forecast = job_forecast(tenant=tenant, actor=actor, spec=spec)
    except ApplicationError as error:
        return Judged(forecast=None, places=placed(error, names))
    cap = (spec.get("budget") or {}).get("max_cost")
    return Judged(
        forecast=forecast,
        places=_beside(forecast, names),
        rows=tuple(_row(line) for line in forecast.estimate.lines),
        cap=None if cap is None else Decimal(cap),
        in_use=tuple(_in_use(tenant)),
    )


def _beside(forecast: Forecast, names: Collection[str]) -> Placed:
    """Refusals of money and limits that name a field."""
    every = [placed(refused, names) for refused in forecast.refusals if refused.errors]
    fields = {name: sentence for one in every for name, sentence in one.fields.items()}
    return replace(NOTHING, fields=fields)


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


def _in_use(tenant: Tenant) -> Iterator[InUse]:
    """Limits on what runs at once, as far as there are any."""
    limits, used = limits_read(tenant), used_of(tenant)[None]
    for resource, words in _IN_LINE:
        limit = limits.of_tenant(resource)
        if limit is not None:
            yield InUse(words=words, used=used.get(resource, 0), limit=limit)
