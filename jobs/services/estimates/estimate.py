"""What a job would use and cost if it were submitted now: every figure with where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil

from django.utils import timezone

from gpu_runtime.protocol.job_specs import JobSpec
from jobs.selectors.history import Measured, measured_per_unit
from jobs.services.admission.adapter_facts import AdapterFacts
from jobs.services.admission.start import Start
from jobs.services.estimates.adapter_size import AdapterSize, adapter_size, lora_asked
from jobs.services.estimates.planned_units import METERS_OF_KIND, Planned, planned_units, work_units
from tenants.billing.models import Meter, PriceVersion
from tenants.billing.prices.quotes import Quote, quote
from tenants.models import Tenant

UNKNOWN = "unknown: neither the specification nor finished jobs of yours tell it; it is not priced"
NOT_STORED = "LoRA reads no stored features, so every epoch costs a forward and a backward pass of the base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Units of one meter. All None: unknown. ``likely`` None: a bound without any experience."""

    meter: Meter
    low: int | None
    likely: int | None
    high: int | None
    basis: str

    @property
    def is_known(self) -> bool:
        return self.high is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """``likely`` counts a bound in full where there is no experience."""

    low: Decimal
    likely: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateLine:
    """One meter with its price now; no cost where the quantity is unknown."""

    figure: Figure
    version: PriceVersion
    cost: Money | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The known part of a job's cost. ``is_complete``: no meter of its kind is unknown.

    ``adapter``: None where the job trains no LoRA.
    """

    currency: str
    permille: int
    lines: tuple[EstimateLine, ...]
    cost: Money
    adapter: AdapterSize | None = None

    @property
    def is_complete(self) -> bool:
        return all(line.figure.is_known for line in self.lines)


def hold_amount(tenant: Tenant, spec: JobSpec, start: Start) -> Decimal:
    """What is reserved for a job while it lives: what it may cost at most, else the known part of what it will."""
    if spec.budget.max_cost is not None:
        return Decimal(spec.budget.max_cost)
    return hold_of(spec, estimate(tenant, spec, start))


def hold_of(spec: JobSpec, known: Estimate) -> Decimal:
    """`hold_amount` where the estimate is known already."""
    return known.cost.high if spec.budget.max_cost is None else Decimal(spec.budget.max_cost)


def estimate(tenant: Tenant, spec: JobSpec, start: Start) -> Estimate:
    """Units by meter at their price now. Raises ApplicationError ``no_price`` if a meter has none."""
    figures = figures_of(tenant, spec, start)
    low = _priced(tenant, spec, {one.meter: one.low or 0 for one in figures})
    likely = _priced(tenant, spec, {one.meter: _likely(one) for one in figures})
    high = _priced(tenant, spec, {one.meter: one.high or 0 for one in figures})
    amounts = [{line.meter: line.amount for line in priced.lines} for priced in (low, likely, high)]
    versions = {line.meter: line.version for line in high.lines}
    lines = []
    for figure in figures:
        cost = Money(**{name: by[figure.meter] for name, by in zip(("low", "likely", "high"), amounts, strict=True)})
        version = versions[figure.meter]
        lines.append(EstimateLine(figure=figure, version=version, cost=cost if figure.is_known else None))
    total = Money(low=low.amount, likely=likely.amount, high=high.amount)
    return Estimate(
        currency=high.currency,
        permille=high.permille,
        lines=tuple(lines),
        cost=total,
        adapter=adapter_size(spec, base_model=start.base_model),
    )


def figures_of(tenant: Tenant, spec: JobSpec, start: Start) -> tuple[Figure, ...]:
    """Every meter that jobs of this kind use."""
    planned = planned_units(spec, horizon=_horizon(start))
    with_lora = lora_asked(spec) is not None
    measured = measured_per_unit(tenant, kind=spec.kind, start=start, with_lora=with_lora)
    units = work_units(spec)
    figures = (_figure(meter, planned.get(meter), measured.get(meter), units) for meter in METERS_OF_KIND[spec.kind])
    return tuple(_of_lora(figure) for figure in figures) if with_lora else tuple(figures)


def _figure(meter: Meter, planned: Planned | None, measured: Measured | None, units: int) -> Figure:
    """What the specification says goes before experience, which only says where below a bound it will be."""
    if planned is not None and planned.low == planned.high:
        return Figure(meter=meter, low=planned.low, likely=planned.low, high=planned.high, basis=planned.basis)
    if measured is None:
        if planned is None:
            return Figure(meter=meter, low=None, likely=None, high=None, basis=UNKNOWN)
        return Figure(meter=meter, low=planned.low, likely=None, high=planned.high, basis=planned.basis)
    told = f"measured: median of the last {measured.jobs} jobs of this kind, base and head"
    low, likely, high = (ceil(rate * units) for rate in (measured.low, measured.median, measured.high))
    if planned is None:
        return Figure(meter=meter, low=low, likely=likely, high=high, basis=told)
    return Figure(
        meter=meter,
        low=planned.low,
        likely=min(likely, planned.high),
        high=planned.high,
        basis=f"{planned.basis}; {told}",
    )


def _of_lora(figure: Figure) -> Figure:
    """Device time says why it is more than without LoRA."""
    return replace(figure, basis=f"{figure.basis}. {NOT_STORED}") if figure.meter == Meter.TRAIN_COMPUTE_US else figure


def _likely(figure: Figure) -> int:
    return figure.high or 0 if figure.likely is None else figure.likely


def _priced(tenant: Tenant, spec: JobSpec, quantities: Mapping[str, int]) -> Quote:
    return quote(tenant, quantities, priority=spec.priority, at=timezone.now())


def _horizon(start: Start) -> int | None:
    """Chunk length of the policy a job starts from; a demonstration has none."""
    return None if start.policy is None else AdapterFacts.model_validate(start.policy.manifest).action.horizon
