"""The price screens: nothing is announced before it is confirmed, and the effect shown is the effect."""

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tenants.audit.models import AuditEvent
from tenants.billing.models import PricePlan, PriceVersion, PriorityFactor
from tenants.scope import platform_scope
from tests.support.story import Story
from tests.support.usage import ingest, set_price

PAGE = "/admin/prices/standard/train.samples/"


@pytest.fixture
def plan(db: None) -> PricePlan:
    return PricePlan.objects.get(code="standard")


def change(plan: PricePlan, **fields: Any) -> dict[str, Any]:
    return {
        "step": "preview",
        "shape": "unit",
        "amount": "0.50",
        "per": "1000",
        "tiers": "",
        "valid_from": "2100-01-01T00:00",
        "reason": "dearer power",
        "version": plan.version,
    } | fields


def announced(plan: PricePlan) -> list[PriceVersion]:
    return list(PriceVersion.objects.filter(plan=plan, valid_from__gt=timezone.now()))


def acts() -> list[str]:
    with platform_scope():
        return list(AuditEvent.objects.filter(actor_kind="operator").values_list("verb", flat=True))


def test_a_plan_shows_each_meter_with_its_price(operator: Client, plan: PricePlan):
    page = operator.get("/admin/prices/").content.decode()
    for meter in ("train.samples", "env.steps", "storage.byte_hours"):
        assert f"/admin/prices/standard/{meter}/" in page


def test_the_preview_shows_what_the_month_would_have_cost_and_announces_nothing(
    operator: Client, plan: PricePlan, story: Story
):
    for person, samples in ((story.alice, 4000), (story.charlie, 1000)):
        ingest(person.tenant, samples=samples, occurred_at=timezone.now())
    answer = operator.post(PAGE, change(plan))
    preview = answer.context["preview"]
    assert {(row.tenant.name, row.cost_then) for row in preview.rows} == {
        ("Alice's lab", Decimal("2.00")),
        ("Charlie's lab", Decimal("0.50")),
    }
    assert preview.cost_then == Decimal("2.50")
    assert preview.difference == preview.cost_then - preview.cost_now != 0
    page = answer.content.decode()
    assert "Alice&#x27;s lab" in page
    assert "2.50 EUR" in page
    assert announced(plan) == []
    assert acts() == []
    assert PricePlan.objects.get(pk=plan.pk).version == plan.version


def test_the_effect_can_be_taken_away_as_csv(operator: Client, plan: PricePlan, story: Story):
    ingest(story.alice.tenant, samples=4000, occurred_at=timezone.now())
    answer = operator.post(PAGE, change(plan, step="csv"))
    titles, row = list(csv.reader(io.StringIO(b"".join(answer).decode())))
    assert dict(zip(titles, row, strict=True))["cost then"].rstrip("0") == "2."
    assert announced(plan) == []


def test_a_change_begins_from_the_newest_price_written_out(operator: Client, plan: PricePlan):
    set_price("env.steps", "20", per=1_000, valid_from=timezone.now())
    form = operator.get("/admin/prices/standard/env.steps/").context["form"]
    assert (form.initial["amount"], form.initial["per"]) == ("20", 1_000)


def test_a_confirmed_price_is_announced_once_and_written_down(operator: Client, plan: PricePlan):
    assert operator.post(PAGE, change(plan, step="confirm")).status_code == 302
    (price,) = announced(plan)
    assert (price.amount, price.per, price.meter) == (Decimal("0.50"), 1000, "train.samples")
    assert acts() == ["price.announced"]
    again = operator.post(PAGE, change(plan, step="confirm"))  # the plan has moved on since that page
    assert "was changed meanwhile" in again.content.decode()
    assert len(announced(plan)) == 1


def test_tiers_are_written_as_lines(operator: Client, plan: PricePlan):
    tiers = "1,000,000 0.05\nrest 0.03"
    form = change(plan, shape="graduated", amount="", tiers=tiers, step="confirm")
    assert operator.post(PAGE, form).status_code == 302
    assert announced(plan)[0].tiers == [{"up_to": 1_000_000, "amount": "0.05"}, {"up_to": None, "amount": "0.03"}]
    page = operator.get(PAGE).content.decode()
    assert "1000000 0.05\nrest 0.03" in page  # a change begins from what was announced


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"valid_from": "2020-01-01T00:00"}, "or later"),
        ({"shape": "graduated", "amount": "", "tiers": "5 0.1\n3 0.2\nrest 0.3"}, "whole numbers and rise"),
        ({"shape": "graduated", "amount": "", "tiers": "cheap"}, "is not a bound"),
        ({"shape": "unit", "amount": "-1"}, "at least 0"),
        ({"reason": ""}, "required"),
    ],
)
def test_a_price_that_makes_no_sense_is_refused_in_words(
    operator: Client, plan: PricePlan, fields: dict[str, str], words: str
):
    assert words in operator.post(PAGE, change(plan, step="confirm", **fields)).content.decode()
    assert announced(plan) == []


def test_a_priority_pays_its_factor_after_a_second_look(operator: Client, plan: PricePlan):
    page, form = (
        "/admin/prices/standard/priorities/",
        {
            "priority": "9",
            "permille": "1500",
            "valid_from": "2100-01-01T00:00",
            "reason": "urgent work",
            "version": plan.version,
        },
    )
    assert "1500 thousandths" in operator.post(page, form).content.decode()
    assert not PriorityFactor.objects.filter(permille=1500).exists()
    assert operator.post(page, form | {"step": "confirm"}).status_code == 302
    assert PriorityFactor.objects.get(plan=plan, permille=1500).priority == 9
    assert acts() == ["factor.announced"]


def test_a_new_plan_begins_with_the_prices_of_another(operator: Client, plan: PricePlan):
    form = {"code": "academic", "name": "Academic", "currency": "EUR", "copy_of": plan.pk}
    assert operator.post("/admin/prices/", form).status_code == 302
    made = PricePlan.objects.get(code="academic")
    assert made.prices.count() == plan.prices.values("meter").distinct().count() > 0
    assert acts() == ["plan.created"]


def test_who_may_only_look_at_prices_changes_none(onlooker: Client, plan: PricePlan):
    assert onlooker.get(PAGE).status_code == 200
    assert onlooker.post(PAGE, change(plan, step="confirm")).status_code == 403
    assert onlooker.post("/admin/prices/", {"code": "x", "name": "x", "currency": "EUR"}).status_code == 403
    assert onlooker.post("/admin/prices/standard/priorities/", {"step": "confirm"}).status_code == 403
    assert announced(plan) == []


@pytest.mark.parametrize(
    "page", ["/admin/prices/nowhere/", "/admin/prices/standard/heat/", "/admin/prices/x/priorities/"]
)
def test_an_unknown_plan_or_meter_is_a_missing_page(operator: Client, page: str):
    assert operator.get(page).status_code == 404


def test_without_a_name_the_plan_is_that_of_everybody(operator: Client):
    PricePlan.objects.create(code="academic", name="Academic", currency="EUR")
    page = operator.get("/admin/prices/").content.decode()
    assert "<h1>Prices: Standard</h1>" in page
    assert "/admin/prices/academic/" in page
