"""Actions on chosen rows: a page asks first, then the service acts on each, and each act is written down."""

from typing import Any

import pytest
from django.test import Client

from tenants.audit.models import AuditEvent
from tenants.scope import platform_scope
from tenants.webhooks.models import DeliveryState
from tests.support.story import Person, Story
from tests.support.webhooks import make_delivery, reread

DELIVERIES = "/admin/webhooks/webhookdelivery/"


def choose(browser: Client, page: str, action: str, *rows: Any, **more: str) -> Any:
    return browser.post(page, {"action": action, "_selected_action": [str(row.pk) for row in rows], **more})


def acts() -> list[tuple[str, str]]:
    with platform_scope():
        rows = AuditEvent.objects.filter(actor_kind="operator").order_by("pk")
        return [(row.verb, row.object_id) for row in rows]


def test_deliveries_are_sent_again_only_after_the_question(operator: Client, story: Story):
    first, second = make_delivery(story.alice), make_delivery(story.charlie)
    question = choose(operator, DELIVERIES, "redeliver", first, second)
    assert "Send these again" in question.content.decode()
    assert "<b>2</b>" in question.content.decode()
    assert [reread(row).state for row in (first, second)] == [DeliveryState.FAILED] * 2
    assert acts() == []
    assert choose(operator, DELIVERIES, "redeliver", first, second, confirmed="yes").status_code == 302
    assert [reread(row).state for row in (first, second)] == [DeliveryState.WAITING] * 2
    assert len(acts()) == 2


def test_what_is_refused_is_told_and_the_rest_is_done(operator: Client, story: Story):
    failed, waiting = make_delivery(story.alice), make_delivery(story.charlie, state=DeliveryState.WAITING)
    choose(operator, DELIVERIES, "redeliver", failed, waiting, confirmed="yes")
    page = operator.get(DELIVERIES).content.decode()
    assert "Send again: 1 of 2." in page
    assert "It is on its way" in page


def test_too_many_rows_at_once_are_none(operator: Client, alice: Person, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenants.admin_confirm.MOST_ROWS", 1)
    rows = [make_delivery(alice) for _ in range(2)]
    choose(operator, DELIVERIES, "redeliver", *rows, confirmed="yes")
    assert "at most 1 at once" in operator.get(DELIVERIES).content.decode()
    assert acts() == []


def test_who_may_only_look_is_offered_no_action_but_the_csv(onlooker: Client, alice: Person):
    row = make_delivery(alice)
    page = onlooker.get(DELIVERIES).content.decode()
    assert 'value="export_as_csv"' in page
    assert 'value="redeliver"' not in page
    choose(onlooker, DELIVERIES, "redeliver", row, confirmed="yes")
    assert reread(row).state == DeliveryState.FAILED
    assert acts() == []
