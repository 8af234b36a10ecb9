"""Prices: what is in force and what is to come, and a change that shows what it would have cost before it is made."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from control_plane.operator.price_forms import FactorForm, PlanForm, PriceForm, tiers_as_lines
from control_plane.operator.screens import framed, operator_of, refused, require, screen
from tenants.billing.models import DEFAULT_PLAN, Meter, PricePlan, PriceVersion, PriorityFactor, TenantPlan
from tenants.billing.money import plain
from tenants.billing.prices.plans import factor_announce, plan_create, price_announce
from tenants.billing.prices.previews import PreviewRow, price_preview
from tenants.billing.usage.periods import month_of
from tenants.errors import ApplicationError
from tenants.tables import csv_answer

VIEW, PRICES, FACTORS, PLANS = (
    "billing.view_priceversion",
    "billing.add_priceversion",
    "billing.add_priorityfactor",
    "billing.add_priceplan",
)
ROWS_SHOWN = 200
FACTORS_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A meter of a plan: its price now, and those announced."""

    meter: Meter
    now: PriceVersion | None
    to_come: Sequence[PriceVersion]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What this month so far would have cost. Rows with the biggest differences first."""

    rows: Sequence[PreviewRow]
    cost_now: Decimal
    cost_then: Decimal

    @property
    def difference(self) -> Decimal:
        return self.cost_then - self.cost_now

    @property
    def shown(self) -> Sequence[PreviewRow]:
        return self.rows[:ROWS_SHOWN]


@screen(VIEW)
def prices_page(request: HttpRequest, code: str | None = None) -> HttpResponse:
    """A plan's prices and factors; without ``code`` of the one that everybody is on. New plans are made here."""
    plans = list(PricePlan.objects.order_by("code"))
    plan = next((row for row in plans if row.code == (code or DEFAULT_PLAN)), None)
    if plan is None:
        raise Http404
    form = PlanForm(request.POST if request.method == "POST" else None)
    if request.method == "POST":
        require(request, PLANS)
        if form.is_valid() and (made := _created(request, form)):
            return HttpResponseRedirect(reverse("admin:operator_plan", args=[made.code]))
    return framed(
        request,
        "prices.html",
        f"Prices: {plan.name}",
        plan=plan,
        plans=plans,
        priced=prices_of(plan),
        factors=_factors(plan),
        tenants=TenantPlan.objects.filter(plan=plan).values("tenant").distinct().count(),
        plan_form=form,
    )


@screen(VIEW)
def price_page(request: HttpRequest, code: str, meter: str) -> HttpResponseBase:
    """Step one asks for the price, step two shows its effect, and only ``step=confirm`` announces it."""
    plan = get_object_or_404(PricePlan, code=code)
    priced = next((row for row in prices_of(plan) if row.meter == meter), None)
    if priced is None:
        raise Http404
    step = request.POST.get("step", "")
    form, preview = _form(request, plan, priced), None
    if request.method == "POST":
        require(request, PRICES)
        if form.is_valid():
            try:
                if step == "confirm":
                    return _announced(request, plan, priced.meter, form)
                preview = _preview(plan, priced.meter, form)
            except ApplicationError as error:
                form.add_error(None, refused(error))
    if preview is not None and step == "csv":
        return _as_csv(preview, f"{plan.code} {meter}")
    return framed(
        request,
        "price.html",
        f"{plan.name}: {meter}",
        plan=plan,
        priced=priced,
        form=form,
        preview=preview,
        month=month_of(timezone.now()),
    )


@screen(VIEW)
def factor_page(request: HttpRequest, code: str) -> HttpResponse:
    """Step one asks, step two repeats it in words, and only ``step=confirm`` announces the factor."""
    plan = get_object_or_404(PricePlan, code=code)
    form = FactorForm(request.POST if request.method == "POST" else None, initial={"version": plan.version})
    if request.method == "POST":
        require(request, FACTORS)
        if form.is_valid() and request.POST.get("step") == "confirm":
            data = form.cleaned_data
            try:
                row = factor_announce(
                    by=operator_of(request),
                    plan=plan,
                    priority=data["priority"],
                    permille=data["permille"],
                    valid_from=data["valid_from"],
                    expected_version=data["version"],
                    reason=data["reason"],
                )
                since = f"{row.valid_from:%Y-%m-%d %H:%M}"
                messages.success(request, f"Priority {row.priority} pays {row.permille} ‰ from {since} UTC on.")
                return HttpResponseRedirect(reverse("admin:operator_plan", args=[plan.code]))
            except ApplicationError as error:
                form.add_error(None, refused(error))
    ready = form.is_bound and form.is_valid()
    return framed(
        request, "factor.html", f"{plan.name}: priorities", plan=plan, form=form, ready=ready, factors=_factors(plan)
    )


def prices_of(plan: PricePlan) -> list[Priced]:
    """Every meter, in the order in which they are declared; one query."""
    now = timezone.now()
    rows: dict[str, list[PriceVersion]] = {meter: [] for meter in Meter.values}
    for row in PriceVersion.objects.filter(plan=plan).order_by("valid_from"):
        rows[row.meter].append(row)
    return [
        Priced(
            meter=meter,
            now=next((row for row in reversed(rows[meter]) if row.valid_from <= now), None),
            to_come=[row for row in rows[meter] if row.valid_from > now],
        )
        for meter in Meter
    ]


def _factors(plan: PricePlan) -> list[PriorityFactor]:
    rows = PriorityFactor.objects.filter(plan=plan).select_related("created_by")
    return list(rows.order_by("priority", "-valid_from")[:FACTORS_SHOWN])


def _created(request: HttpRequest, form: PlanForm) -> PricePlan | None:
    try:
        plan = plan_create(by=operator_of(request), **form.cleaned_data)
    except ApplicationError as error:
        form.add_error(None, refused(error))
        return None
    messages.success(request, f"Plan {plan.name} is there; nobody is on it yet.")
    return plan


def _form(request: HttpRequest, plan: PricePlan, priced: Priced) -> PriceForm:
    """As sent, else filled with the newest price announced: a change begins from what will be."""
    if request.method == "POST":
        return PriceForm(request.POST)
    newest = priced.to_come[-1] if priced.to_come else priced.now
    initial: dict[str, Any] = {"version": plan.version, "per": 1}
    if newest is not None:
        initial |= {"shape": newest.shape, "per": newest.per, "tiers": tiers_as_lines(newest.tiers)}
        initial["amount"] = None if newest.tiers else plain(newest.amount)
    return PriceForm(initial=initial)


def _preview(plan: PricePlan, meter: str, form: PriceForm) -> Preview:
    rows = price_preview(plan=plan, meter=meter, month=month_of(timezone.now()), **form.price())
    return Preview(
        rows=sorted(rows, key=lambda row: -abs(row.difference)),
        cost_now=sum((row.cost_now for row in rows), Decimal(0)),
        cost_then=sum((row.cost_then for row in rows), Decimal(0)),
    )


def _announced(request: HttpRequest, plan: PricePlan, meter: str, form: PriceForm) -> HttpResponse:
    data = form.cleaned_data
    row = price_announce(
        by=operator_of(request),
        plan=plan,
        meter=meter,
        valid_from=data["valid_from"],
        expected_version=data["version"],
        reason=data["reason"],
        **form.price(),
    )
    messages.success(request, f"Announced: {row} from {row.valid_from:%Y-%m-%d %H:%M} UTC on.")
    return HttpResponseRedirect(reverse("admin:operator_plan", args=[plan.code]))


def _as_csv(preview: Preview, name: str) -> HttpResponseBase:
    columns = ("tenant", "slug", "units", "cost now", "cost then", "difference")
    rows = (
        (row.tenant.name, row.tenant.slug, row.quantity, *map(_full, (row.cost_now, row.cost_then, row.difference)))
        for row in preview.rows
    )
    return csv_answer(columns, rows, name=f"price preview {name}")


def _full(amount: Decimal) -> str:
    return f"{amount:f}"
