"""Who is asking: API keys, sessions, and which tenant a session means."""

import asyncio
import datetime as dt
import re

import pytest
import time_machine
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client
from django_scopes import get_scope

from tenants.models import ApiKey, Role
from tenants.scope import platform_scope
from tests.support.factories import PASSWORD, MembershipFactory, UserFactory, make_key
from tests.support.story import Person, Story, api_client, make_story


def me(text: str):
    return api_client().get("/api/v1/me", headers={"Authorization": text})


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Api-Key"])
def test_a_key_works_with_either_scheme(bob: Person, scheme: str):
    answer = me(f"{scheme} {bob.key}").json()
    assert answer["email"] == "bob@example.org"
    assert answer["tenant"] == {"id": str(bob.tenant.pk), "name": "Alice's lab", "role": "researcher"}
    assert answer["key"] == bob.key_row.prefix


def test_the_text_of_a_key_is_not_in_the_database(bob: Person):
    tag, prefix, secret = bob.key.split("_")
    assert (tag, prefix) == ("jnx", bob.key_row.prefix)
    assert len(secret) == 64
    assert secret not in str(vars(bob.key_row))


def test_every_bad_key_gets_the_same_answer(bob: Person):
    now = dt.datetime.now(dt.UTC)
    _, expired = make_key(bob.tenant, user=bob.user, expires_at=now - dt.timedelta(seconds=1))
    _, revoked = make_key(bob.tenant, user=bob.user, revoked_at=now)
    bad = [
        expired,
        revoked,
        bob.key[:-1] + ("0" if bob.key[-1] != "0" else "1"),
        f"jnx_{'0' * 12}_{'0' * 64}",
        "jnx_" + bob.key.split("_")[1] + "_",
        bob.key.replace("jnx_", "xxx_"),
        f"jnx_{'0' * 500}_{'0' * 64}",
        "jnx_a\x00b_secret",
        "jnx_é_secret",
        "nonsense",
        "",
    ]
    answers = [me(f"Bearer {text}") for text in bad] + [me(f"Basic {bob.key}")]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.json()["detail"] for answer in answers}) == 1


def test_a_key_dies_with_its_makers_account(bob: Person):
    bob.user.is_active = False
    bob.user.save()
    assert me(f"Bearer {bob.key}").status_code == 401


def test_a_bad_key_never_falls_back_to_the_session(alice: Person):
    answer = alice.browser().get("/api/v1/me", headers={"Authorization": "Bearer nonsense"})
    assert answer.status_code == 401


def test_last_used_is_written_once_a_minute(bob: Person):
    def last_used() -> dt.datetime:
        with platform_scope():
            return ApiKey.objects.get(pk=bob.key_row.pk).last_used_at

    with time_machine.travel("2026-05-01 12:00:00+00:00", tick=False) as clock:
        bob.api.get("/api/v1/me")
        first = last_used()
        clock.shift(59)
        bob.api.get("/api/v1/me")
        assert last_used() == first
        clock.shift(2)
        bob.api.get("/api/v1/me")
        assert last_used() > first


def test_logging_in_and_out(alice: Person):
    browser = Client()
    answer = browser.post("/login/", {"login": "Alice@example.org", "password": PASSWORD})
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert browser.get("/api/v1/me").json()["email"] == "alice@example.org"
    assert browser.post("/logout/").status_code == 302
    assert browser.get("/api/v1/me").status_code == 401


def test_a_wrong_password_and_an_unknown_address_look_alike(alice: Person):
    def refused(email: str) -> str:
        answer = Client().post("/login/", {"login": email, "password": "wrong"})
        assert answer.status_code == 200
        page = answer.content.decode().replace(email, "EMAIL")
        return re.sub(r'value="[^"]{64}"', "TOKEN", page)

    assert refused("alice@example.org") == refused("nobody@example.org")


def test_a_session_needs_the_csrf_token_to_write(alice: Person):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice.user)
    body, kind = '{"name": "ci"}', "application/json"
    refused = browser.post("/api/v1/keys", body, content_type=kind, headers={"Idempotency-Key": "k"})
    assert (refused.status_code, refused["Content-Type"]) == (403, "application/problem+json")
    browser.cookies["csrftoken"] = token = "t" * 32
    headers = {"Idempotency-Key": "k", "X-CSRFToken": token}
    assert browser.post("/api/v1/keys", body, content_type=kind, headers=headers).status_code == 201


def test_a_session_means_the_first_tenant_unless_told_otherwise(story: Story):
    MembershipFactory(user=story.bob.user, tenant=story.charlie.tenant, role=Role.VIEWER)
    browser = story.bob.browser()
    answer = browser.get("/api/v1/me").json()
    assert answer["tenant"]["name"] == "Alice's lab"
    assert [row["name"] for row in answer["tenants"]] == ["Alice's lab", "Charlie's lab"]
    elsewhere = browser.get("/api/v1/me", headers={"X-Tenant": str(story.charlie.tenant.pk)}).json()
    assert elsewhere["tenant"] == {"id": str(story.charlie.tenant.pk), "name": "Charlie's lab", "role": "viewer"}


def test_switching_the_tenant_is_remembered_by_the_session(story: Story):
    MembershipFactory(user=story.bob.user, tenant=story.charlie.tenant, role=Role.VIEWER)
    browser = story.bob.browser()
    answer = browser.post("/tenant/", {"tenant": str(story.charlie.tenant.pk), "next": "https://evil.example/"})
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert browser.get("/api/v1/me").json()["tenant"]["name"] == "Charlie's lab"


def test_a_foreign_tenant_and_a_missing_one_are_refused_alike(story: Story):
    browser = story.bob.browser()
    names = [str(story.charlie.tenant.pk), "00000000-0000-4000-8000-000000000000", "nonsense", ""]
    answers = [browser.get("/api/v1/me", headers={"X-Tenant": name}) for name in names]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.json()["detail"] for answer in answers}) == 1
    assert browser.post("/tenant/", {"tenant": names[0]}).status_code == 403


def test_a_key_works_in_its_own_tenant_only(story: Story):
    MembershipFactory(user=story.bob.user, tenant=story.charlie.tenant, role=Role.VIEWER)
    own, other = str(story.bob.tenant.pk), str(story.charlie.tenant.pk)
    assert story.bob.api.get("/api/v1/me", headers={"X-Tenant": own}).status_code == 200
    assert story.bob.api.get("/api/v1/me", headers={"X-Tenant": other}).status_code == 403


def test_a_tenant_left_behind_in_the_session_falls_back_to_the_first(story: Story):
    membership = MembershipFactory(user=story.bob.user, tenant=story.charlie.tenant, role=Role.VIEWER)
    browser = story.bob.browser()
    browser.post("/tenant/", {"tenant": str(story.charlie.tenant.pk)})
    with platform_scope():
        membership.delete()
    assert browser.get("/api/v1/me").json()["tenant"]["name"] == "Alice's lab"


@pytest.mark.django_db
def test_a_user_without_a_tenant_is_told_so():
    browser = Client()
    browser.force_login(UserFactory())
    answer = browser.get("/api/v1/me")
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:joynexus:problem:no-tenant")


def test_the_scope_is_closed_after_the_request(bob: Person):
    bob.api.get("/api/v1/members")
    assert "tenant" not in get_scope()


@pytest.mark.django_db(transaction=True)
def test_the_scope_also_holds_when_many_requests_share_the_asgi_server():
    story = make_story()
    people = [story.bob, story.charlie] * 3

    async def ask(person: Person) -> str:
        answer = await AsyncClient().get("/api/v1/members", headers={"Authorization": f"Bearer {person.key}"})
        return " ".join(sorted(row["email"] for row in answer.json()["results"]))

    async def ask_all() -> list[str]:
        try:
            return await asyncio.gather(*(ask(person) for person in people))
        finally:
            await sync_to_async(connections.close_all)()

    answers = asyncio.run(ask_all())
    assert answers == ["alice@example.org bob@example.org vera@example.org", "charlie@example.org"] * 3
