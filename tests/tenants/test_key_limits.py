"""What narrows an API key: scopes, a project, a spend cap, an end; and that no key makes a wider one."""

from decimal import Decimal

import pytest
from django.utils import timezone

from tenants.models import ApiKey, Role
from tenants.permissions import Permission, narrowed, permissions_of
from tenants.scope import platform_scope
from tenants.services import member_set_role
from tests.support.factories import ProjectFactory, make_key
from tests.support.story import Api, Person, Story, api_client, make_person
from tests.tenants.test_members import membership

SCOPED = ["jobs:read", "keys:manage"]


def made(person: Person | Api, **body: object):
    api = person.api if isinstance(person, Person) else person
    return api.post("/api/v1/keys", {"name": "ci"} | body)


def keyed(person: Person, role: str = "owner", **fields: object) -> Api:
    return api_client(make_key(person.tenant, role, person.user, **fields)[1])


@pytest.mark.parametrize("role", Role.values)
def test_scopes_only_ever_narrow_a_role(role: str):
    for scope in Permission:
        assert narrowed(role, [scope]) == permissions_of(role) & {scope}
    assert narrowed(role, ["no:such"]) == frozenset()
    assert narrowed(role, []) == permissions_of(role)


def test_a_scoped_key_does_what_its_scopes_say_and_no_more(bob: Person):
    answer = made(bob, scopes=["jobs:read"]).json()
    assert answer["scopes"] == ["jobs:read"]
    api = api_client(answer["key"])
    assert api.get("/api/v1/me").json()["permissions"] == ["jobs:read"]
    assert api.get("/api/v1/jobs").status_code == 200
    refused = api.get("/api/v1/datasets")
    assert (refused.status_code, refused.json()["detail"]) == (
        403,
        "This API key lacks the permission 'datasets:read'.",
    )


def test_a_scope_must_exist_and_be_of_the_role(bob: Person):
    unknown = made(bob, scopes=["jobs:fly"])
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/scopes/0")
    beyond = made(bob, scopes=["members:manage"])
    assert (beyond.status_code, beyond.json()["errors"][0]["code"]) == (422, "not_of_role")


def test_no_key_makes_a_key_that_can_do_more(alice: Person):
    narrow = keyed(alice, scopes=SCOPED)
    assert made(narrow, role="owner").status_code == 403
    assert made(narrow, role="viewer").status_code == 403  # a viewer may read datasets, this key may not
    assert made(narrow, role="owner", scopes=["jobs:write"]).status_code == 403
    assert made(narrow, role="viewer", scopes=["jobs:read"]).status_code == 201


def test_no_narrow_key_hands_out_a_role(alice: Person):
    narrow = keyed(alice, scopes=["members:manage"])
    offer = {"email": "dora@example.org", "role": "owner"}
    assert narrow.post("/api/v1/invitations", offer).status_code == 403
    assert narrow.post("/api/v1/members", offer).status_code == 403
    assert narrow.post("/api/v1/invitations", offer | {"role": "viewer"}).status_code == 403


def test_a_key_of_a_project_makes_keys_of_that_project_only(alice: Person):
    project = ProjectFactory(tenant=alice.tenant, slug="mine")
    bound = keyed(alice, project=project)
    assert made(bound).json()["project"] == "mine"
    assert made(bound, project="default").json()["errors"][0]["code"] == "not_this_keys"
    assert {row["project"] for row in bound.get("/api/v1/keys").json()["results"]} == {"mine"}
    assert made(alice, project="none").json()["errors"][0]["pointer"] == "/project"


def test_a_key_made_by_a_key_ends_no_later(alice: Person):
    ending = keyed(alice, expires_at=timezone.now() + timezone.timedelta(days=1))
    assert made(ending).json()["errors"][0]["code"] == "outlives_its_maker"
    soon = (timezone.now() + timezone.timedelta(hours=1)).isoformat()
    assert made(ending, expires_at=soon).status_code == 201


def test_a_spend_cap_is_exact_money_and_cannot_be_shed(alice: Person):
    answer = made(alice, spend_cap="12.500000000001").json()
    assert answer["spend_cap"] == "12.500000000001"
    with platform_scope():
        assert ApiKey.objects.get(pk=answer["id"]).spend_cap == Decimal("12.500000000001")
    assert made(alice, spend_cap="0").json()["errors"][0]["code"] == "not_positive"
    assert made(alice, spend_cap=12.5).status_code == 422
    assert made(api_client(answer["key"])).status_code == 403


def test_a_lowered_role_takes_the_stronger_keys_with_it(story: Story):
    adam = make_person("adam", story.alice.tenant, Role.ADMIN)
    weak = keyed(adam, role="viewer")
    with platform_scope():
        member_set_role(actor=story.alice.actor, membership_id=membership(adam).pk, role="researcher")
    assert adam.api.get("/api/v1/me").status_code == 401
    assert weak.get("/api/v1/me").status_code == 200
