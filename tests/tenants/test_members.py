"""Members and their roles."""

import threading

import pytest
from django.db import connection

from tenants.errors import ApplicationError
from tenants.identity import actor_for_key
from tenants.models import ApiKey, Membership, Role, User
from tenants.permissions import ROLE_PERMISSIONS, Permission, may_grant, permissions_of
from tenants.scope import platform_scope, tenant_scope
from tenants.services import (
    invitation_create,
    key_create,
    key_revoke,
    member_add,
    member_remove,
    member_set_role,
)
from tests.support.factories import UserFactory
from tests.support.story import Person, Story, make_person, make_story


def membership(person: Person) -> Membership:
    with platform_scope():
        return Membership.objects.get(user=person.user, tenant=person.tenant)


def test_every_role_has_a_line_in_the_table_and_unknown_ones_have_no_rights():
    assert set(ROLE_PERMISSIONS) == set(Role)
    assert permissions_of("janitor") == frozenset()


def test_nobody_hands_out_more_than_they_have():
    allowed = {granter: {role.value for role in Role if may_grant(granter, role)} for granter in Role}
    assert allowed == {
        Role.OWNER: {"owner", "admin", "researcher", "viewer", "billing"},
        Role.ADMIN: {"admin", "researcher", "viewer", "billing"},
        Role.RESEARCHER: {"researcher", "viewer"},
        Role.VIEWER: {"viewer"},
        Role.BILLING: {"billing"},
    }


def test_reading_roles_write_nothing():
    writing = {Permission.JOBS_WRITE, Permission.DATASETS_WRITE, Permission.MEMBERS_MANAGE, Permission.KEYS_MANAGE}
    assert not permissions_of(Role.VIEWER) & writing
    assert not permissions_of(Role.BILLING) & writing


def test_members_of_the_own_tenant_are_listed(viewer: Person):
    rows = viewer.api.get("/api/v1/members").json()["results"]
    assert {(row["email"], row["role"]) for row in rows} == {
        ("alice@example.org", "owner"),
        ("bob@example.org", "researcher"),
        ("vera@example.org", "viewer"),
    }


def test_an_owner_adds_an_existing_user_by_address(alice: Person):
    UserFactory(email="dora@example.org")
    answer = alice.api.post("/api/v1/members", {"email": " Dora@Example.org".strip(), "role": "billing"})
    assert (answer.status_code, answer.json()["email"], answer.json()["role"]) == (201, "dora@example.org", "billing")


def test_an_unknown_address_and_a_member_are_refused(alice: Person):
    unknown = alice.api.post("/api/v1/members", {"email": "nobody@example.org", "role": "viewer"})
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/email")
    known = alice.api.post("/api/v1/members", {"email": "bob@example.org", "role": "viewer"})
    assert (known.status_code, known.json()["type"]) == (409, "urn:joynexus:problem:already-a-member")


def test_an_admin_neither_makes_nor_unmakes_owners(story: Story):
    admin = make_person("adam", story.alice.tenant, Role.ADMIN)
    UserFactory(email="dora@example.org")
    path = f"/api/v1/members/{membership(story.alice).pk}"
    assert admin.api.post("/api/v1/members", {"email": "dora@example.org", "role": "owner"}).status_code == 403
    assert admin.api.patch(path, {"role": "viewer"}).status_code == 403
    assert admin.api.delete(path).status_code == 403
    assert admin.api.patch(f"/api/v1/members/{membership(story.bob).pk}", {"role": "viewer"}).status_code == 200


def test_the_last_owner_cannot_leave_or_step_down(alice: Person):
    path = f"/api/v1/members/{membership(alice).pk}"
    for answer in (alice.api.delete(path), alice.api.patch(path, {"role": "admin"})):
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:last-owner")
    assert membership(alice).role == Role.OWNER


def test_an_owner_may_leave_once_there_is_another(alice: Person, story: Story):
    make_person("olga", story.alice.tenant, Role.OWNER)
    assert alice.api.delete(f"/api/v1/members/{membership(alice).pk}").status_code == 204
    assert alice.browser().get("/api/v1/me").status_code == 403


def test_whoever_leaves_loses_the_keys_made_here(alice: Person, bob: Person):
    assert alice.api.delete(f"/api/v1/members/{membership(bob).pk}").status_code == 204
    assert bob.api.get("/api/v1/me").status_code == 401
    with platform_scope():
        assert ApiKey.objects.get(pk=bob.key_row.pk).revoked_at is not None


def test_an_owner_whose_account_is_closed_is_no_other_owner(alice: Person):
    olga = make_person("olga", alice.tenant, Role.OWNER)
    User.objects.filter(pk=olga.user.pk).update(is_active=False)
    assert alice.api.delete(f"/api/v1/members/{membership(alice).pk}").status_code == 409


@pytest.mark.parametrize("lost", ["membership", "role", "key"])
def test_whoever_lost_their_rights_while_the_request_came_in_hands_out_none(story: Story, lost: str):
    """As it is when the loss commits between the request's log-in and the service: the actor is of before."""
    adam = make_person("adam", story.alice.tenant, Role.ADMIN)
    UserFactory(email="dora@example.org")
    actor = actor_for_key(adam.key) if lost == "key" else adam.actor
    with tenant_scope(story.alice.tenant):
        if lost == "membership":
            member_remove(actor=story.alice.actor, membership_id=membership(adam).pk)
        elif lost == "role":
            member_set_role(actor=story.alice.actor, membership_id=membership(adam).pk, role="viewer")
        else:
            key_revoke(actor=story.alice.actor, key_id=adam.key_row.pk)
        with pytest.raises(ApplicationError, match="permission_denied"):
            key_create(actor=actor, name="back door", role="admin")
        with pytest.raises(ApplicationError, match="permission_denied"):
            key_create(actor=actor, name="back door", role="admin", scopes=["jobs:write"])
        with pytest.raises(ApplicationError, match="permission_denied"):
            member_add(actor=actor, email="dora@example.org", role="admin")
        with pytest.raises(ApplicationError, match="permission_denied"):
            invitation_create(actor=actor, email="eve@example.org", role="admin", link=str)


@pytest.mark.django_db(transaction=True)
def test_two_owners_leaving_at_once_leave_one_behind():
    story = make_story()
    owners = [story.alice, make_person("olga", story.alice.tenant, Role.OWNER)]
    start, outcomes = threading.Barrier(2), []

    def leave(person: Person) -> None:
        start.wait()
        try:
            with tenant_scope(person.tenant):
                member_remove(actor=person.actor, membership_id=membership(person).pk)
            outcomes.append("left")
        except ApplicationError as error:
            outcomes.append(error.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=leave, args=(person,)) for person in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["last_owner", "left"]
