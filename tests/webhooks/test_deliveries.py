"""An event on its way: signed, tried for a day, claimed once, given up, never lost."""

import ipaddress
import json
import threading
from datetime import timedelta

import pytest
import time_machine
from cryptography.fernet import Fernet
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from standardwebhooks import Webhook, WebhookVerificationError

from jobs.services.transition import job_transition
from jobs.states import JobState
from tenants.audit.models import AuditEvent
from tenants.scope import platform_scope
from tenants.webhooks import deliveries, endpoints, tasks
from tenants.webhooks.deliveries import PAUSES, TRIES_MAX
from tenants.webhooks.models import DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookEvent
from tenants.webhooks.nudges import DELIVER
from tenants.webhooks.sealing import unseal
from tenants.webhooks.sender import Answer
from tenants.webhooks.services import webhook_event
from tests.support.jobs import make_job
from tests.support.receivers import receiver
from tests.support.story import Person, Story, make_story
from tests.support.webhooks import make_webhook, reread

START = "2026-05-01 12:00:00+00:00"


@pytest.fixture(autouse=True)
def opened(settings):
    settings.JOYNEXUS_WEBHOOK_ALLOW = (ipaddress.ip_network("127.0.0.1/32"),)


@pytest.fixture
def nudged(monkeypatch) -> list[tuple[str, int]]:
    """The messages that would go to Celery: (delivery, tries so far)."""
    sent: list[tuple[str, int]] = []

    def send_task(name, args, **options):
        assert name == DELIVER
        sent.append(tuple(args))

    monkeypatch.setattr("tenants.webhooks.nudges.current_app.send_task", send_task)
    return sent


def answer_with(monkeypatch, *answers: Answer) -> list[bytes]:
    """Sending gives these outcomes, the last one for ever; returns the bodies that were sent."""
    waiting, sent = list(answers), []

    def send(url, *, headers, body):
        sent.append(body)
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    monkeypatch.setattr(deliveries, "send", send)
    return sent


OK = Answer(status=204, error="", duration_ms=3)
BROKEN = Answer(status=500, error="answered 500", duration_ms=3)


def tell(person: Person, kind: str = "job.succeeded") -> WebhookDelivery:
    """One event to the one endpoint there is."""
    with transaction.atomic():
        event = webhook_event(person.tenant.pk, kind, {"job_id": "42"})
    with platform_scope():
        return WebhookDelivery.objects.get(event=event)


def secret_of(endpoint: WebhookEndpoint) -> str:
    with platform_scope():
        return unseal(WebhookEndpoint.objects.get(pk=endpoint.pk).secret)


def test_a_delivery_is_signed_so_that_the_receivers_library_accepts_it(alice: Person):
    with receiver() as there:
        endpoint = make_webhook(alice, f"http://127.0.0.1:{there.port}/hook")
        delivery = tell(alice)
        tasks.deliver(str(delivery.pk), 0)
    (request,) = there.received
    told = Webhook(secret_of(endpoint)).verify(request.body, request.headers)
    assert (told["type"], told["data"]) == ("job.succeeded", {"job_id": "42"})
    assert request.headers["webhook-id"] == str(delivery.event_id)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_of(endpoint)).verify(request.body.replace(b"42", b"43"), request.headers)
    row = reread(delivery)
    assert (row.state, row.attempts, row.response_status, row.error) == (DeliveryState.DELIVERED, 1, 204, "")
    assert row.delivered_at is not None
    assert row.next_try_at is None


def test_after_a_rotation_both_secrets_sign_for_a_day(alice: Person):
    with receiver() as there, time_machine.travel(START, tick=False) as clock:
        endpoint = make_webhook(alice, f"http://127.0.0.1:{there.port}/")
        former = secret_of(endpoint)
        with platform_scope():
            fresh = endpoints.webhook_rotate_secret(actor=alice.actor, webhook_id=endpoint.pk).secret
        assert fresh.startswith("whsec_")
        assert fresh != former
        tasks.deliver(str(tell(alice).pk), 0)
        clock.shift(timedelta(hours=24, seconds=1))
        tasks.deliver(str(tell(alice).pk), 0)
        during, after = there.received
        for secret in (former, fresh):
            with time_machine.travel(START, tick=False):
                Webhook(secret).verify(during.body, during.headers)
        Webhook(fresh).verify(after.body, after.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(former).verify(after.body, after.headers)


def test_a_failing_receiver_is_tried_for_a_day_then_given_up_with_the_same_id(alice: Person, monkeypatch, nudged):
    sent = answer_with(monkeypatch, BROKEN)
    with time_machine.travel(START, tick=False) as clock:
        make_webhook(alice)
        delivery = tell(alice)
        began = timezone.now()
        for tries in range(TRIES_MAX):
            clock.move_to(reread(delivery).next_try_at)
            nudged.clear()
            assert tasks.sweep() == 1
            assert nudged == [(str(delivery.pk), tries)]
            tasks.deliver(*nudged[0])
        assert timedelta(hours=23) < timezone.now() - began <= timedelta(hours=24)
    row = reread(delivery)
    assert (row.state, row.attempts, row.error) == (DeliveryState.FAILED, TRIES_MAX, "answered 500")
    assert len(sent) == TRIES_MAX == len(PAUSES) + 1
    assert len(set(sent)) == 1


def test_a_receiver_that_recovers_ends_the_tries(alice: Person, monkeypatch, nudged):
    answer_with(monkeypatch, BROKEN, OK)
    endpoint = make_webhook(alice)
    delivery = tell(alice)
    tasks.deliver(str(delivery.pk), 0)
    assert reread(delivery).endpoint.failing_since is not None
    tasks.deliver(str(delivery.pk), 1)
    assert reread(delivery).state == DeliveryState.DELIVERED
    with platform_scope():
        assert WebhookEndpoint.objects.get(pk=endpoint.pk).failing_since is None


def test_a_message_that_comes_twice_or_late_makes_no_try(alice: Person, monkeypatch):
    sent = answer_with(monkeypatch, BROKEN)
    make_webhook(alice)
    delivery = tell(alice)
    for tries in (0, 0, 5):
        tasks.deliver(str(delivery.pk), tries)
    assert len(sent) == 1


def test_a_worker_killed_while_it_sends_is_made_up_for_by_the_sweep(alice: Person, monkeypatch, nudged):
    def killed(url, *, headers, body):
        raise SystemExit(9)

    monkeypatch.setattr(deliveries, "send", killed)
    with time_machine.travel(START, tick=False) as clock:
        make_webhook(alice)
        delivery = tell(alice)
        with pytest.raises(SystemExit):
            tasks.deliver(str(delivery.pk), 0)
        assert tasks.sweep() == 0  # the claim still stands
        clock.shift(deliveries.CLAIM_TTL)
        nudged.clear()
        assert tasks.sweep() == 1
        sent = answer_with(monkeypatch, OK)
        tasks.deliver(*nudged[0])
    assert len(sent) == 1
    assert (reread(delivery).state, reread(delivery).attempts) == (DeliveryState.DELIVERED, 2)


def test_a_message_lost_before_the_first_try_is_sent_by_the_sweep_once_a_minute(alice: Person, nudged):
    with time_machine.travel(START, tick=False) as clock:
        make_webhook(alice)
        delivery = tell(alice)
        nudged.clear()
        assert [tasks.sweep(), tasks.sweep()] == [1, 0]
        clock.shift(60)
        assert tasks.sweep() == 1
    assert nudged == [(str(delivery.pk), 0)] * 2


def test_a_broker_that_is_down_costs_nothing_but_time(alice: Person, monkeypatch):
    def down(*args, **options):
        raise ConnectionError("no broker")

    monkeypatch.setattr("tenants.webhooks.nudges.current_app.send_task", down)
    make_webhook(alice)
    delivery = tell(alice)
    assert tasks.sweep() == 0
    assert reread(delivery).next_try_at <= timezone.now()


@pytest.mark.django_db(transaction=True)
def test_of_eight_workers_with_the_same_message_one_sends(monkeypatch):
    alice = make_story().alice
    with receiver() as there:
        make_webhook(alice, f"http://127.0.0.1:{there.port}/")
        delivery = tell(alice)
        start = threading.Barrier(8)

        def work() -> None:
            start.wait()
            try:
                tasks.deliver(str(delivery.pk), 0)
            finally:
                connection.close()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(there.received) == 1
    assert reread(delivery).attempts == 1


def test_a_slow_receiver_gets_two_tries_at_once_and_the_others_wait(alice: Person, monkeypatch):
    sent = answer_with(monkeypatch, OK)
    make_webhook(alice)
    rows = [tell(alice) for _ in range(3)]
    with platform_scope():
        under_way = [row.pk for row in rows[:2]]
        WebhookDelivery.objects.filter(pk__in=under_way).update(claimed_until=timezone.now() + timedelta(seconds=9))
    tasks.deliver(str(rows[2].pk), 0)
    waiting = reread(rows[2])
    assert sent == []
    assert (waiting.state, waiting.attempts) == (DeliveryState.WAITING, 0)
    assert waiting.next_try_at > timezone.now()


def test_after_five_days_of_failures_the_endpoint_is_disabled_and_its_tenant_can_read_why(
    alice: Person, monkeypatch, nudged
):
    answer_with(monkeypatch, BROKEN)
    with time_machine.travel(START, tick=False) as clock:
        endpoint = make_webhook(alice)
        tasks.deliver(str(tell(alice).pk), 0)
        clock.shift(timedelta(days=5, seconds=-1))
        tasks.deliver(str(tell(alice).pk), 0)
        assert alice.api.get(f"/api/v1/webhooks/{endpoint.pk}").json()["enabled"] is True
        clock.shift(1)
        last = tell(alice)
        tasks.deliver(str(last.pk), 0)
        body = alice.api.get(f"/api/v1/webhooks/{endpoint.pk}").json()
        assert (body["enabled"], body["disabled_reason"]) == (False, "every delivery failed for 5 days")
        assert reread(last).state == DeliveryState.FAILED
        with platform_scope():
            event = AuditEvent.objects.get(verb="webhook.disabled")
            assert (event.actor_kind, event.tenant_id) == ("system", alice.tenant.pk)
            assert webhook_event(alice.tenant.pk, "job.failed", {}) is None
            assert not WebhookDelivery.objects.filter(state=DeliveryState.WAITING).exists()


def test_an_event_of_a_transaction_that_fails_is_told_to_nobody(alice: Person, nudged):
    make_webhook(alice)
    with transaction.atomic():
        webhook_event(alice.tenant.pk, "job.succeeded", {})
        transaction.set_rollback(True)
    with platform_scope():
        assert not WebhookEvent.objects.exists()


def test_only_those_who_listen_are_told(story: Story):
    with platform_scope():
        endpoints.webhook_create(actor=story.alice.actor, url="https://a.example.org/", events=["job.failed"])
        endpoints.webhook_create(actor=story.charlie.actor, url="https://c.example.org/", events=[])
        assert webhook_event(story.alice.tenant.pk, "job.succeeded", {}) is None
        assert webhook_event(story.alice.tenant.pk, "job.failed", {}) is not None
        assert set(WebhookDelivery.objects.values_list("tenant", flat=True)) == {story.alice.tenant.pk}
    with pytest.raises(ValueError, match="is not a valid EventType"):
        webhook_event(story.alice.tenant.pk, "no.such", {})


def test_a_job_that_starts_and_ends_is_told(bob: Person):
    make_webhook(bob)
    job = make_job(bob)
    for state in (JobState.STARTING, JobState.RUNNING, JobState.SUCCEEDED):
        assert job_transition(job, to=state)
    with platform_scope():
        told = [(row.type, row.data["job_id"]) for row in WebhookEvent.objects.order_by("created_at")]
    assert told == [("job.started", str(job.pk)), ("job.succeeded", str(job.pk))]


def test_secrets_are_encrypted_and_a_new_key_takes_them_over(alice: Person, settings):
    endpoint = make_webhook(alice)
    secret = secret_of(endpoint)
    assert secret not in endpoint.secret
    former_ring = settings.JOYNEXUS_WEBHOOK_KEYS
    fresh = Fernet.generate_key().decode()
    settings.JOYNEXUS_WEBHOOK_KEYS = [fresh, *former_ring]
    assert secret_of(endpoint) == secret
    call_command("rotate_webhook_keys")
    settings.JOYNEXUS_WEBHOOK_KEYS = [fresh]
    assert secret_of(endpoint) == secret


def test_a_secret_no_key_opens_fails_the_delivery_and_says_so(alice: Person, settings):
    make_webhook(alice)
    delivery = tell(alice)
    settings.JOYNEXUS_WEBHOOK_KEYS = [Fernet.generate_key().decode()]
    tasks.deliver(str(delivery.pk), 0)
    assert reread(delivery).error == "the signing secret cannot be read; rotate it"


def test_old_events_are_forgotten_with_their_deliveries(alice: Person):
    with time_machine.travel(START, tick=False) as clock:
        make_webhook(alice)
        tell(alice)
        clock.shift(timedelta(days=20))
        kept = tell(alice)
        clock.shift(timedelta(days=10, seconds=1))
        assert tasks.prune() == 1
    with platform_scope():
        assert [row.pk for row in WebhookDelivery.objects.all()] == [kept.pk]


def test_a_body_is_json_with_type_time_and_data(alice: Person):
    make_webhook(alice)
    with platform_scope():
        row = WebhookDelivery.objects.select_related("endpoint", "event").get(pk=tell(alice).pk)
        _, body = deliveries.signed(row, timezone.now())
    assert set(json.loads(body)) == {"type", "timestamp", "data"}
