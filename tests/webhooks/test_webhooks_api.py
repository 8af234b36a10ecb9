"""Endpoints and deliveries by REST: secrets shown once, everything audited, nothing of another tenant."""

import pytest

from tenants.audit.models import AuditEvent
from tenants.models import ApiKey, Project
from tenants.scope import platform_scope
from tenants.webhooks.models import DeliveryState, WebhookDelivery, WebhookEndpoint
from tests.support.story import Person, Story
from tests.support.webhooks import URL, make_delivery, make_webhook, reread

BODY = {"url": URL, "events": ["job.failed", "job.succeeded"]}


def verbs() -> list[str]:
    with platform_scope():
        return list(AuditEvent.objects.filter(object_type="webhookendpoint").values_list("verb", flat=True))


def test_an_endpoint_is_made_and_its_secret_shown_once(alice: Person):
    first = alice.api.post("/api/v1/webhooks", BODY, headers={"Idempotency-Key": "w-1"})
    assert first.status_code == 201
    assert first.json()["secret"].startswith("whsec_")
    again = alice.api.post("/api/v1/webhooks", BODY, headers={"Idempotency-Key": "w-1"})
    assert again.json() == {**first.json(), "secret": None}
    row = alice.api.get(first["Location"]).json()
    assert "secret" not in row
    assert (row["url"], row["events"], row["enabled"]) == (URL, ["job.failed", "job.succeeded"], True)
    assert [item["id"] for item in alice.api.get("/api/v1/webhooks").json()["results"]] == [row["id"]]
    assert verbs() == ["webhook.created"]
    with platform_scope():
        assert first.json()["secret"] not in str(AuditEvent.objects.filter(verb="webhook.created").values().get())


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        ({"url": "http://hooks.example.org"}, "/url", "allowed: https"),
        ({"url": "https://169.254.169.254/latest"}, "/url", "not a public one"),
        ({"url": "https://hooks.example.org:22"}, "/url", "443, 8443"),
        ({"url": URL, "events": ["job.exploded"]}, "/events/0", "'job.succeeded'"),
        ({"url": URL, "events": ["test"]}, "/events", "Allowed: job.started"),
        ({"url": URL, "colour": "red"}, "/colour", "Allowed: url, events"),
        ({}, "/url", "required"),
    ],
)
def test_a_wrong_endpoint_is_refused_by_name(alice: Person, body: dict, pointer: str, said: str):
    answer = alice.api.post("/api/v1/webhooks", body)
    assert answer.status_code == 422
    error = answer.json()["errors"][0]
    assert error["pointer"] == pointer
    assert said in error["detail"]


def test_an_endpoint_is_changed_disabled_and_enabled(alice: Person):
    endpoint = make_webhook(alice)
    delivery = make_waiting(alice, endpoint)
    path = f"/api/v1/webhooks/{endpoint.pk}"
    assert alice.api.patch(path, {"url": URL + "/2", "events": ["job.failed"]}).json()["events"] == ["job.failed"]
    assert alice.api.patch(path, {"enabled": False}).json()["enabled"] is False
    assert reread(delivery).state == DeliveryState.FAILED
    assert alice.api.post(f"{path}/test", {}).status_code == 409
    back = alice.api.patch(path, {"enabled": True}).json()
    assert (back["enabled"], back["disabled_reason"]) == (True, "")
    assert alice.api.patch(path, {"url": "https://10.0.0.1/"}).status_code == 422
    with platform_scope():
        changes = list(
            AuditEvent.objects.filter(verb="webhook.changed").order_by("pk").values_list("after", flat=True)
        )
    assert changes[1:] == [{"enabled": False}, {"enabled": True}]


def make_waiting(person: Person, endpoint: WebhookEndpoint) -> WebhookDelivery:
    answer = person.api.post(f"/api/v1/webhooks/{endpoint.pk}/test", {})
    assert answer.status_code == 202
    with platform_scope():
        return WebhookDelivery.objects.get(pk=answer.json()["id"])


def test_a_test_event_goes_to_this_endpoint_only_and_can_be_followed(alice: Person):
    endpoint, _ = make_webhook(alice), make_webhook(alice)
    answer = alice.api.post(f"/api/v1/webhooks/{endpoint.pk}/test", {})
    assert (answer.json()["type"], answer.json()["state"]) == ("test", "waiting")
    row = alice.api.get(answer["Location"]).json()
    assert (row["webhook"], row["data"]) == (str(endpoint.pk), {"webhook_id": str(endpoint.pk)})
    with platform_scope():
        assert WebhookDelivery.objects.count() == 1


def test_a_secret_is_rotated_and_the_former_one_is_told_to_end(alice: Person):
    endpoint = make_webhook(alice)
    answer = alice.api.post(f"/api/v1/webhooks/{endpoint.pk}/rotate-secret", {})
    assert answer.status_code == 201
    assert answer.json()["former_until"] is not None
    assert "webhook.secret_rotated" in verbs()


def test_a_delivery_is_sent_again_and_only_once_it_has_ended(alice: Person):
    delivery = make_delivery(alice, attempts=8, error="answered 500")
    path = f"/api/v1/webhook-deliveries/{delivery.pk}"
    answer = alice.api.post(f"{path}/redeliver", {})
    assert answer.status_code == 202
    body = answer.json()
    assert (body["state"], body["attempts"], body["error"]) == ("waiting", 0, "")
    assert body["event_id"] == str(delivery.event_id)
    again = alice.api.post(f"{path}/redeliver", {})
    assert (again.status_code, again.json()["type"]) == (409, "urn:joynexus:problem:delivery-waiting")
    assert "webhook.redelivered" in verbs()


def test_deliveries_are_filtered_by_endpoint_state_and_type(alice: Person):
    delivery = make_delivery(alice)
    other = make_waiting(alice, make_webhook(alice))

    def found(query: str) -> list[str]:
        return [row["id"] for row in alice.api.get(f"/api/v1/webhook-deliveries?{query}").json()["results"]]

    assert found("state=failed") == [str(delivery.pk)]
    assert found("type=test") == [str(other.pk)]
    assert found(f"webhook={delivery.endpoint_id}") == [str(delivery.pk)]
    assert found("state=delivered") == []
    assert alice.api.get("/api/v1/webhook-deliveries?state=lost").status_code == 422


def test_an_endpoint_is_deleted_with_its_deliveries(alice: Person):
    delivery = make_delivery(alice)
    path = f"/api/v1/webhooks/{delivery.endpoint_id}"
    assert alice.api.delete(path).status_code == 204
    assert alice.api.get(path).status_code == 404
    assert alice.api.get("/api/v1/webhook-deliveries").json()["results"] == []
    assert "webhook.deleted" in verbs()


def test_a_tenant_has_at_most_twenty_endpoints(alice: Person):
    for _ in range(20):
        make_webhook(alice)
    answer = alice.api.post("/api/v1/webhooks", BODY)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:too-many-webhooks")


def test_a_key_of_one_project_sees_no_webhooks(alice: Person):
    with platform_scope():
        project = Project.objects.get(tenant=alice.tenant, slug="default")
        ApiKey.objects.filter(pk=alice.key_row.pk).update(project=project)
    for path in ("webhooks", "webhook-deliveries"):
        assert alice.api.get(f"/api/v1/{path}").status_code == 403
    assert alice.api.post("/api/v1/webhooks", BODY).status_code == 403


def test_researchers_manage_no_webhooks(story: Story):
    assert story.bob.api.get("/api/v1/webhooks").status_code == 403
