"""Acts on the runtime's and the books' screens of the operators' admin."""

from time import monotonic
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from kombu import Queue

from control_plane.celery import app
from jobs import runtime_client, tasks
from jobs.models import OutboxMessage
from jobs.services.outbox import RECONCILE_BOOKS
from tenants.audit.models import AuditEvent
from tenants.billing.models import ReconciliationRun
from tenants.models import User
from tenants.scope import platform_scope
from tests.support.memory_runtime import InMemoryRuntime

RUNTIME, BOOKS = "/admin/runtime/", "/admin/reconciliation/"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, db: None) -> InMemoryRuntime:
    running = InMemoryRuntime()
    monkeypatch.setattr(runtime_client, "connect", lambda: running)
    return running


def send(browser: Client, page: str, act: str, **fields: Any) -> Any:
    return browser.post(page, {"act": act, **{f"{act}-{name}": value for name, value in fields.items()}})


def acts() -> list[tuple[str, str]]:
    with platform_scope():
        return list(AuditEvent.objects.filter(actor_kind="operator").order_by("pk").values_list("verb", "reason"))


def test_a_service_is_drained_with_a_reason_and_given_out_again(operator: Client, runtime: InMemoryRuntime):
    assert send(operator, RUNTIME, "drain", service="training", reason="").status_code == 200
    assert send(operator, RUNTIME, "drain", service="training", reason="new driver").status_code == 302
    page = operator.get(RUNTIME).content.decode()
    assert "draining" in page
    assert "new driver" in page
    assert "The training service is draining: new driver." in operator.get("/admin/").content.decode()
    assert send(operator, RUNTIME, "undrain", service="training", reason="it is in").status_code == 302
    assert "draining" not in operator.get(RUNTIME).content.decode()
    assert acts() == [("service.drained", "new driver"), ("service.undrained", "it is in")]


def test_a_runtime_that_does_not_answer_is_told_at_the_form(operator: Client, settings: Any, tmp_path: Any):
    settings.JOYNEXUS_RUNTIME_URL = f"unix://{tmp_path}/nowhere.sock"
    answer = send(operator, RUNTIME, "drain", service="training", reason="new driver")
    assert "does not answer" in answer.content.decode()
    assert acts() == []


def test_the_books_are_compared_by_a_worker_in_the_operators_name(operator: Client, olga: User):
    assert send(operator, BOOKS, "run").status_code == 302
    message = OutboxMessage.objects.get(topic=RECONCILE_BOOKS)
    assert tasks.reconcile_books(message.key) == 0
    run = ReconciliationRun.objects.get()
    assert (run.by, run.difference_count) == (olga.email, 0)
    page = operator.get(BOOKS).content.decode()
    assert olga.email in page
    assert "measured time is metered" in page
    assert [verb for verb, _ in acts()] == ["billing.reconciled"]


def test_a_run_under_way_is_not_started_a_second_time(operator: Client):
    ReconciliationRun.objects.create(started_at=timezone.now(), by="nightly")
    assert "being compared already" in send(operator, BOOKS, "run").content.decode()
    assert not OutboxMessage.objects.filter(topic=RECONCILE_BOOKS).exists()


@pytest.mark.parametrize(("page", "act"), [(RUNTIME, "drain"), (RUNTIME, "undrain"), (BOOKS, "run")])
def test_who_may_only_look_changes_nothing(onlooker: Client, runtime: InMemoryRuntime, page: str, act: str):
    assert 'name="act"' not in onlooker.get(page).content.decode()
    assert send(onlooker, page, act, service="training", reason="x").status_code == 403
    assert acts() == []


def test_messages_that_wait_at_the_broker_are_counted(operator: Client):
    def page() -> str:
        return operator.get(RUNTIME).content.decode()

    with app.connection_for_write() as connection:
        queue = Queue(app.conf.task_default_queue, channel=connection.default_channel, durable=True)
        queue.declare()
        queue.purge()
        assert "waiting for a worker: celery 0, webhooks 0" in page()
        for number in range(3):
            connection.default_channel.basic_publish(
                connection.default_channel.prepare_message(str(number)), routing_key=queue.name, exchange=""
            )
        assert "waiting for a worker: celery 3, webhooks 0" in page()
        queue.purge()


def test_a_broker_that_is_away_is_said_and_does_not_hold_up_the_page(
    operator: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
):
    monkeypatch.setattr(app.conf, "broker_read_url", f"redis+socket://{tmp_path}/nowhere.sock")
    began_s = monotonic()
    assert "unreachable" in operator.get(RUNTIME).content.decode()
    assert monotonic() - began_s < 10
