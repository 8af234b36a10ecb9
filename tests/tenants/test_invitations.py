"""Invitations: who may offer what to whom, and that one token makes one member."""

import datetime as dt
import threading

import pytest
import time_machine
from django.core import mail
from django.db import connection

from tenants.errors import ApplicationError
from tenants.models import Invitation, Membership, Role, User
from tenants.scope import platform_scope
from tenants.selectors import invitation_by_token
from tenants.services import invitation_accept, invitation_sign_up, member_remove, member_set_role
from tenants.services.invitations import token_sha256
from tests.support.factories import PASSWORD, UserFactory
from tests.support.story import Person, Story, make_person, make_story
from tests.tenants.test_members import membership


def invite(person: Person, email: str = "dora@example.org", role: str = "researcher"):
    return person.api.post("/api/v1/invitations", {"email": email, "role": role})


def invitation_of(answer) -> Invitation:
    found = invitation_by_token(token_sha256(answer.json()["token"]))
    assert found is not None
    return found


def test_the_token_is_shown_once_and_only_its_hash_is_kept(alice: Person):
    made = invite(alice)
    assert made.status_code == 201
    token = made.json()["token"]
    assert made.json()["accept_url"] == f"http://testserver/invitations/accept/{token}/"
    with platform_scope():
        row = Invitation.objects.get()
    assert token not in str(vars(row))
    listed = alice.api.get("/api/v1/invitations").json()["results"][0]
    assert listed["email"] == "dora@example.org"
    assert not {"token", "accept_url", "token_sha256"} & set(listed)


def test_the_invited_person_gets_a_letter_with_the_link(alice: Person, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        made = invite(alice)
    letter = mail.outbox[0]
    assert letter.to == ["dora@example.org"]
    assert letter.subject == "[JoyNexus] Join Alice's lab"
    assert made.json()["accept_url"] in letter.body
    assert "alice@example.org" in letter.body


def test_a_mail_server_that_is_down_does_not_lose_the_invitation(
    alice: Person, django_capture_on_commit_callbacks, settings
):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_PORT = 1
    with django_capture_on_commit_callbacks(execute=True):
        assert invite(alice).status_code == 201


def test_a_replayed_request_does_not_show_the_token_again(alice: Person):
    headers = {"Idempotency-Key": "once"}
    body = {"email": "dora@example.org", "role": "viewer"}
    assert alice.api.post("/api/v1/invitations", body, headers=headers).json()["token"]
    again = alice.api.post("/api/v1/invitations", body, headers=headers)
    assert (again.json()["token"], again["Idempotent-Replayed"]) == (None, "true")


def test_nobody_invites_into_a_stronger_role_than_theirs(story: Story):
    admin = make_person("adam", story.alice.tenant, Role.ADMIN)
    assert invite(admin, role="owner").status_code == 403
    assert invite(story.bob, role="viewer").status_code == 403
    assert invite(story.alice, role="owner").status_code == 201


def test_a_member_and_somebody_invited_already_are_refused(alice: Person):
    assert invite(alice, "bob@example.org").json()["type"] == "urn:joynexus:problem:already-a-member"
    assert invite(alice).status_code == 201
    assert invite(alice, "Dora@Example.org").json()["type"] == "urn:joynexus:problem:already-invited"


def test_an_expired_invitation_is_not_in_the_way_of_a_new_one(alice: Person):
    with time_machine.travel("2026-05-01 12:00:00+00:00", tick=False) as clock:
        first = invite(alice)
        clock.shift(dt.timedelta(days=7))
        assert invitation_by_token(token_sha256(first.json()["token"])) is None
        assert invite(alice).status_code == 201


def test_a_revoked_token_is_worth_nothing_and_revoking_twice_is_the_same(alice: Person):
    made = invite(alice).json()
    for _ in range(2):
        assert alice.api.delete(f"/api/v1/invitations/{made['id']}").status_code == 204
    assert invitation_by_token(token_sha256(made["token"])) is None


def test_an_admin_does_not_revoke_what_an_owner_offered_to_an_owner(story: Story):
    admin = make_person("adam", story.alice.tenant, Role.ADMIN)
    made = invite(story.alice, role="owner").json()
    assert admin.api.delete(f"/api/v1/invitations/{made['id']}").status_code == 403


def test_accepting_makes_a_member_in_the_offered_role(alice: Person):
    offer = invitation_of(invite(alice, role="billing"))
    dora = UserFactory(email="dora@example.org")
    assert invitation_accept(invitation=offer, user=dora).role == "billing"
    with platform_scope():
        row = Invitation.objects.get()
    assert (row.accepted_by, row.accepted_at is not None) == (dora, True)
    assert alice.api.delete(f"/api/v1/invitations/{row.pk}").json()["type"].endswith("invitation-accepted")


def test_the_address_of_the_account_must_be_the_invited_one(alice: Person):
    offer = invitation_of(invite(alice))
    with pytest.raises(ApplicationError, match="not_invited"):
        invitation_accept(invitation=offer, user=UserFactory(email="mallory@example.org"))


def test_an_invitation_falls_with_the_rights_of_whoever_made_it(story: Story):
    adam = make_person("adam", story.alice.tenant, Role.ADMIN)
    offer = invitation_of(invite(adam, role="admin"))
    with platform_scope():
        member_set_role(actor=story.alice.actor, membership_id=membership(adam).pk, role="viewer")
    with pytest.raises(ApplicationError, match="invitation_gone"):
        invitation_accept(invitation=offer, user=UserFactory(email="dora@example.org"))
    with platform_scope():
        assert Invitation.objects.get().accepted_at is None


def test_an_invitation_falls_with_the_membership_of_whoever_made_it(story: Story):
    adam = make_person("adam", story.alice.tenant, Role.ADMIN)
    offer = invitation_of(invite(adam, role="viewer"))
    with platform_scope():
        member_remove(actor=story.alice.actor, membership_id=membership(adam).pk)
    with pytest.raises(ApplicationError, match="invitation_gone"):
        invitation_accept(invitation=offer, user=UserFactory(email="dora@example.org"))


def test_an_invitation_falls_with_the_account_of_whoever_made_it(story: Story):
    adam = make_person("adam", story.alice.tenant, Role.ADMIN)
    offer = invitation_of(invite(adam, role="viewer"))
    User.objects.filter(pk=adam.user.pk).update(is_active=False)
    with pytest.raises(ApplicationError, match="invitation_gone"):
        invitation_accept(invitation=offer, user=UserFactory(email="dora@example.org"))


def test_signing_up_makes_the_account_and_the_membership_or_neither(alice: Person):
    offer = invitation_of(invite(alice))
    user = invitation_sign_up(invitation=offer, password=PASSWORD)
    assert (user.email, user.check_password(PASSWORD)) == ("dora@example.org", True)
    other = invitation_of(invite(alice, "eve@example.org"))
    alice.api.delete(f"/api/v1/invitations/{other.pk}")
    with pytest.raises(ApplicationError, match="invitation_gone"):
        invitation_sign_up(invitation=other, password=PASSWORD)
    assert not User.objects.filter(email="eve@example.org").exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["accept", "sign up"])
def test_eight_at_once_with_one_token_make_one_member(way: str):
    story = make_story()
    offer = invitation_of(invite(story.alice))
    user = UserFactory(email="dora@example.org") if way == "accept" else None
    outcomes: list[str] = []
    together = threading.Barrier(8)

    def go() -> None:
        try:
            together.wait()
            if user is not None:
                invitation_accept(invitation=offer, user=user)
            else:
                invitation_sign_up(invitation=offer, password=PASSWORD)
            outcomes.append("in")
        except ApplicationError as error:
            outcomes.append(error.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refusal = "invitation_gone" if way == "accept" else "account_exists"
    assert sorted(outcomes) == sorted(["in", *[refusal] * 7])
    with platform_scope():
        assert Membership.objects.filter(user__email="dora@example.org").count() == 1
