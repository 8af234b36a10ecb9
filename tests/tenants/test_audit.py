"""The audit log: what is told, to whom, and that nobody rewrites it."""

import csv
import io
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, connection, transaction

from tenants.audit.models import ActorKind, AuditEvent
from tenants.audit.services import audit
from tenants.models import TenantState
from tenants.scope import platform_scope
from tenants.services import tenant_pause, tenant_resume
from tests.support.factories import UserFactory
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db


def events(person: Person, query: str = "") -> list[dict]:
    return person.api.get(f"/api/v1/audit{query}").json()["results"]


def text_of(answer: Any) -> str:
    async def read() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(read)().decode()


def told(person: Person, verb: str, name: str = "") -> None:
    audit(by=person.actor, verb=verb, target=person.tenant, name=name, tenant=person.tenant)


def test_an_act_is_told_with_actor_object_and_origin(alice: Person):
    made = alice.api.post("/api/v1/keys", {"name": "ci"}, headers={"X-Request-ID": "request-of-a-test"}).json()
    (event,) = events(alice)
    assert (event["verb"], event["actor_kind"], event["actor_name"]) == (
        "key.created",
        "key",
        f"test ({alice.key_row.prefix})",
    )
    assert (event["object_type"], event["object_id"], event["object_name"]) == (
        "apikey",
        made["id"],
        f"ci ({made['prefix']})",
    )
    assert (event["address"], event["request_id"]) == ("127.0.0.1", "request-of-a-test")
    assert event["after"]["role"] == "researcher"
    assert made["key"].split("_")[2] not in str(event)


def test_a_member_with_a_browser_is_told_by_address(alice: Person):
    browser = alice.browser()
    headers = {"Idempotency-Key": "k"}
    assert browser.post("/api/v1/projects", {"name": "p"}, "application/json", headers=headers).status_code == 201
    (event,) = events(alice)
    assert (event["actor_kind"], event["actor_id"], event["actor_name"]) == (
        "user",
        str(alice.user.pk),
        "alice@example.org",
    )


def test_what_is_refused_is_not_told(alice: Person):
    alice.api.post("/api/v1/members", {"email": "nobody@example.org", "role": "viewer"})
    alice.api.post("/api/v1/keys", {"name": "x", "project": "none"})
    assert events(alice) == []


def test_filters_narrow_and_unknown_ones_are_refused(alice: Person):
    for verb in ("key.created", "key.revoked", "member.added"):
        told(alice, verb)
    assert [event["verb"] for event in events(alice, "?verb=key.")] == ["key.revoked", "key.created"]
    assert [event["verb"] for event in events(alice, "?verb=member.added")] == ["member.added"]
    assert len(events(alice, "?actor=Alice@example.org")) == 3
    assert len(events(alice, f"?actor={alice.user.pk}")) == 3
    assert events(alice, "?actor=bob@example.org") == []
    newest = events(alice)[0]["occurred_at"]
    assert [event["occurred_at"] for event in events(alice, f"?since={newest}")] == [newest]
    assert len(events(alice, f"?until={newest}")) == 2
    assert events(alice, f"?object_id={alice.tenant.pk}&limit=1")[0]["verb"] == "member.added"
    assert alice.api.get("/api/v1/audit?who=me").status_code == 422
    assert alice.api.get("/api/v1/audit?since=yesterday").status_code == 422


def test_pages_follow_each_other_without_gaps(alice: Person):
    for number in range(7):
        told(alice, f"key.made_{number}")
    seen, path = [], "/api/v1/audit?limit=3"
    while path:
        page = alice.api.get(path).json()
        seen += [event["verb"] for event in page["results"]]
        path = page["next"]
    assert seen == [f"key.made_{number}" for number in reversed(range(7))]


def test_a_tenant_reads_its_own_acts_only(story: Story):
    told(story.alice, "key.created")
    audit(by=None, verb="price.announced", target=story.alice.tenant, tenant=None)
    assert events(story.charlie) == []
    assert len(events(story.alice)) == 1
    for person in (story.bob, story.viewer):
        assert person.api.get("/api/v1/audit").status_code == 403


def test_the_file_has_every_row_and_no_formula(alice: Person):
    for number in range(1005):
        told(alice, "key.created", name=f'=HYPERLINK("http://evil/{number}")')
    answer = alice.api.get("/api/v1/audit/csv?verb=key.created")
    assert answer["Content-Disposition"] == 'attachment; filename="audit.csv"'
    rows = list(csv.DictReader(io.StringIO(text_of(answer))))
    assert len(rows) == 1005
    assert rows[0]["object_name"] == '\'=HYPERLINK("http://evil/1004")'
    assert alice.api.get("/api/v1/audit/csv?limit=3").status_code == 422


@pytest.mark.parametrize("statement", ["UPDATE audit_auditevent SET verb = 'x'", "DELETE FROM audit_auditevent"])
def test_neither_the_model_nor_the_database_lets_an_event_be_rewritten(alice: Person, statement: str):
    told(alice, "key.created")
    with platform_scope():
        row = AuditEvent.objects.get()
    row.verb = "key.revoked"
    for change in (row.save, row.delete):
        with pytest.raises(TypeError, match="append-only"):
            change()
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_pausing_says_why_and_is_told_once(alice: Person):
    operator = UserFactory(email="op@example.org", is_staff=True)
    for _ in range(2):
        paused = tenant_pause(by=operator, tenant=alice.tenant, reason=" unpaid ")
    assert (paused.state, paused.paused_reason) == (TenantState.PAUSED, "unpaid")
    resumed = tenant_resume(by=operator, tenant=alice.tenant)
    assert (resumed.state, resumed.paused_reason) == (TenantState.ACTIVE, "")
    mine = events(alice)
    assert [(event["verb"], event["actor_kind"], event["reason"]) for event in mine] == [
        ("tenant.resumed", ActorKind.OPERATOR, ""),
        ("tenant.paused", ActorKind.OPERATOR, "unpaid"),
    ]
    assert mine[1]["before"] == {"state": "active", "paused_reason": ""}
