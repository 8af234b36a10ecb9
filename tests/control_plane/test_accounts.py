"""Accounts: log-in limits, second factor, password reset, sessions, and the only way to sign up."""

import re

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.usersessions.models import UserSession
from django.core import mail
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client

from control_plane.accounts.sessions import device
from tenants.models import Membership, User
from tenants.scope import platform_scope
from tests.support.factories import PASSWORD, UserFactory
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db
NEW_PASSWORD = "a battery of staples"


@pytest.fixture(autouse=True)
def _fresh_limits():
    cache.clear()
    yield
    cache.clear()


def log_in(email: str, password: str = PASSWORD, browser: Client | None = None) -> tuple[Client, object]:
    browser = browser or Client()
    return browser, browser.post("/login/", {"login": email, "password": password})


def confirm(browser: Client) -> None:
    """Give the password once more, as changes of who may use the account ask for."""
    assert browser.post("/account/confirm/", {"password": PASSWORD}).status_code == 302


def code_now(secret: str) -> str:
    return format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time()))))


def with_totp(person: Person) -> tuple[Client, str]:
    """A browser whose owner has just turned the second factor on, and the secret."""
    browser, _ = log_in(person.user.email)
    confirm(browser)
    page = browser.get("/account/mfa/totp/activate/").content.decode()
    found = re.search(r'<code class="secret">(\w+)</code>', page)
    assert found
    answer = browser.post("/account/mfa/totp/activate/", {"code": code_now(found[1])})
    assert (answer.status_code, answer["Location"]) == (302, "/account/mfa/recovery-codes/")
    cache.clear()  # a code works once
    return browser, found[1]


def verbs(person: Person) -> list[str]:
    return [event["verb"] for event in person.api.get("/api/v1/audit?verb=account.").json()["results"]]


def test_five_wrong_passwords_lock_the_address_for_a_while_even_for_the_right_one(alice: Person, bob: Person):
    for _ in range(5):
        assert log_in("alice@example.org", "wrong")[1].status_code == 200
    browser, answer = log_in("alice@example.org")
    assert "Too many" in answer.content.decode()
    assert browser.get("/api/v1/me").status_code == 401
    assert log_in("bob@example.org")[1].status_code == 302


def test_one_address_cannot_try_many_accounts(story: Story):
    answers = [log_in(f"nobody{number}@example.org", "wrong")[1] for number in range(11)]
    assert "Too many" in answers[-1].content.decode()
    assert "Too many" not in answers[0].content.decode()


def test_a_forged_header_does_not_buy_another_allowance(story: Story):
    for number in range(11):
        headers = {"X-Forwarded-For": f"10.0.0.{number}"}
        body = {"login": f"nobody{number}@example.org", "password": "wrong"}
        answer = Client().post("/login/", body, headers=headers)
    assert "Too many" in answer.content.decode()


def test_signing_up_without_an_invitation_has_no_page(client: Client):
    for path in ("/signup/", "/account/signup/", "/accounts/signup/"):
        assert client.get(path).status_code == 404


def test_the_second_factor_is_asked_for_and_only_its_code_opens(alice: Person):
    _, secret = with_totp(alice)
    browser, answer = log_in("alice@example.org")
    assert (answer.status_code, answer["Location"]) == (302, "/account/mfa/authenticate/")
    assert browser.get("/api/v1/me").status_code == 401
    assert browser.post("/account/mfa/authenticate/", {"code": "000000"}).status_code == 200
    assert browser.get("/api/v1/me").status_code == 401
    assert browser.post("/account/mfa/authenticate/", {"code": code_now(secret)}).status_code == 302
    assert browser.get("/api/v1/me").json()["email"] == "alice@example.org"


def test_a_recovery_code_works_once(alice: Person):
    browser, _ = with_totp(alice)
    page = browser.get("/account/mfa/recovery-codes/").content.decode()
    codes = re.findall(r"<li><code>(\d+)</code></li>", page)
    assert len(set(codes)) == 10
    for status in (302, 200):
        fresh, _ = log_in("alice@example.org")
        assert fresh.post("/account/mfa/authenticate/", {"code": codes[0]}).status_code == status


def test_the_database_holds_no_readable_secret(alice: Person):
    _, secret = with_totp(alice)
    row = Authenticator.objects.get(user=alice.user, type=Authenticator.Type.TOTP)
    assert secret not in str(row.data)
    assert TOTP(row).validate_code(code_now(secret))


@pytest.mark.django_db(transaction=True)
def test_acts_on_the_account_are_told_to_its_tenants_and_its_owner(alice: Person):
    browser, _ = with_totp(alice)
    assert sorted(verbs(alice)) == ["account.logged_in", *["account.mfa_added"] * 2]
    assert [letter.to for letter in mail.outbox] == [["alice@example.org"]] * len(mail.outbox)
    assert browser.post("/account/mfa/totp/deactivate/").status_code == 302
    assert "account.mfa_removed" in verbs(alice)


def test_a_change_of_who_may_use_the_account_asks_for_the_password_again(alice: Person):
    browser, _ = log_in("alice@example.org")
    answer = browser.get("/account/mfa/totp/activate/")
    assert answer["Location"] == "/account/confirm/?next=%2Faccount%2Fmfa%2Ftotp%2Factivate%2F"
    assert browser.post(answer["Location"], {"password": "wrong"}).status_code == 200
    answer = browser.post(answer["Location"], {"password": PASSWORD})
    assert answer["Location"] == "/account/mfa/totp/activate/"
    assert browser.get(answer["Location"]).status_code == 200


def test_a_reset_link_works_once_and_tells_nobody_whether_an_account_exists(alice: Person):
    known = Client().post("/account/password/reset/", {"email": "alice@example.org"})
    unknown = Client().post("/account/password/reset/", {"email": "nobody@example.org"})
    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    (letter,) = mail.outbox
    link = re.search(r"http://testserver(/account/password/reset/\S+)", letter.body)
    assert link
    browser = Client()
    form = browser.get(link[1])["Location"]
    body = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
    assert browser.post(form, body)["Location"] == "/account/password/reset/done/"
    assert log_in("alice@example.org", NEW_PASSWORD)[1].status_code == 302
    assert "no longer works" in Client().get(link[1]).content.decode()


def test_a_new_password_ends_the_sessions_of_the_old_one(alice: Person):
    here, _ = log_in("alice@example.org")
    there, _ = log_in("alice@example.org")
    body = {"oldpassword": PASSWORD, "password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
    assert here.post("/account/password/", body).status_code == 302
    assert there.get("/api/v1/me").status_code == 401
    assert here.get("/api/v1/me").status_code == 200


def test_a_weak_password_is_refused(alice: Person):
    browser, _ = log_in("alice@example.org")
    for weak in ("short", "password123", "alice@example.org"):
        answer = browser.post("/account/password/", {"oldpassword": PASSWORD, "password1": weak, "password2": weak})
        assert answer.status_code == 200, weak


def test_a_session_is_listed_and_can_be_ended_from_another(alice: Person):
    here, _ = log_in("alice@example.org")
    there, _ = log_in("alice@example.org")
    row = UserSession.objects.get(session_key=there.session.session_key)
    assert "127.0.0.1" in here.get("/account/sessions/").content.decode()
    assert here.post("/account/sessions/", {"session": row.pk}).status_code == 302
    assert there.get("/api/v1/me").status_code == 401
    assert here.get("/api/v1/me").status_code == 200
    assert "account.sessions_ended" in verbs(alice)


@pytest.mark.parametrize(
    ("user_agent", "shown"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/150.0 Safari/537.36 Edg/150.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/604.1", "Safari on iPhone"),
        ("curl/8.0", "curl/8.0"),
        ("", "an unknown browser"),
    ],
)
def test_a_session_is_named_by_its_browser(user_agent: str, shown: str):
    assert device(user_agent) == shown


def test_all_other_sessions_end_at_once_but_nobody_elses(alice: Person, bob: Person):
    here, _ = log_in("alice@example.org")
    others = [log_in("alice@example.org")[0] for _ in range(2)]
    bobs, _ = log_in("bob@example.org")
    foreign = UserSession.objects.get(user=bob.user)
    assert here.post("/account/sessions/", {"session": foreign.pk}).status_code == 404
    assert here.post("/account/sessions/").status_code == 302
    assert [browser.get("/api/v1/me").status_code for browser in [*others, here, bobs]] == [401, 401, 200, 200]


def invite(person: Person, email: str = "dora@example.org") -> str:
    answer = person.api.post("/api/v1/invitations", {"email": email, "role": "researcher"})
    return answer.json()["accept_url"].removeprefix("http://testserver")


def test_a_stranger_signs_up_with_the_invitation_and_is_in(alice: Person):
    path, browser = invite(alice), Client()
    assert "Create the account and join" in browser.get(path).content.decode()
    assert "too short" in browser.post(path, {"password": "short"}).content.decode()
    assert browser.post(path, {"password": NEW_PASSWORD})["Location"] == "/"
    me = browser.get("/api/v1/me").json()
    assert (me["email"], me["tenant"]["name"], me["tenant"]["role"]) == (
        "dora@example.org",
        "Alice's lab",
        "researcher",
    )
    assert UserSession.objects.filter(user__email="dora@example.org").count() == 1
    assert Client().get(path).status_code == 410


def test_somebody_with_an_account_logs_in_and_joins(alice: Person):
    UserFactory(email="dora@example.org")
    path = invite(alice)
    assert f"/login/?next={path}" in Client().get(path).content.decode()
    refused = Client().post(path, {"password": NEW_PASSWORD})
    assert not refused.wsgi_request.user.is_authenticated
    browser, _ = log_in("dora@example.org")
    assert browser.post(path)["Location"] == "/"
    assert browser.get("/api/v1/me").json()["tenant"]["name"] == "Alice's lab"


def test_an_invitation_in_the_wrong_hands_joins_nobody(story: Story):
    path = invite(story.alice)
    browser, _ = log_in("charlie@example.org")
    assert browser.get(path).status_code == 403
    assert browser.post(path).status_code == 403
    with platform_scope():
        assert not Membership.objects.filter(user=story.charlie.user, tenant=story.alice.tenant).exists()


def test_unknown_used_and_revoked_tokens_look_alike(alice: Person):
    used, revoked = invite(alice), invite(alice, "eve@example.org")
    Client().post(used, {"password": NEW_PASSWORD})
    for row in alice.api.get("/api/v1/invitations").json()["results"]:
        alice.api.delete(f"/api/v1/invitations/{row['id']}")
    pages = [Client().get(path) for path in (used, revoked, "/invitations/accept/nonsense/")]
    assert {page.status_code for page in pages} == {410}
    assert len({page.content for page in pages}) == 1


def test_many_sign_ups_from_one_address_are_slowed(alice: Person):
    path = invite(alice)
    answers = [Client().post(path, {"password": "short"}).status_code for _ in range(21)]
    assert answers[-1] == 429
    assert not User.objects.filter(email="dora@example.org").exists()


@pytest.mark.parametrize("required", [True, False])
def test_an_operator_needs_the_second_factor_where_the_installation_says_so(settings, required: bool):
    settings.JOYNEXUS_OPERATOR_MFA = required
    operator = UserFactory(email="op@example.org", is_staff=True, is_superuser=True)
    browser, _ = log_in("op@example.org")
    answer = browser.get("/admin/tenants/tenant/")
    if not required:
        assert answer.status_code == 200
        return
    assert answer["Location"].split("?")[0] == "/admin/login/"
    assert browser.get("/admin/login/")["Location"] == "/account/mfa/totp/activate/"
    factor = Authenticator.objects.create(user=operator, type=Authenticator.Type.TOTP, data={"secret": "x"})
    assert browser.get("/admin/tenants/tenant/").status_code == 302, "this session has shown no code"
    assert browser.get("/admin/login/")["Location"] == "/account/mfa/reauthenticate/?next=/admin/"
    factor.delete()


@pytest.mark.django_db(transaction=True)
def test_the_second_factor_shuts_out_whoever_logged_in_without_it(settings, alice: Person):
    settings.JOYNEXUS_OPERATOR_MFA = True
    User.objects.filter(pk=alice.user.pk).update(is_staff=True, is_superuser=True)
    thief, _ = log_in("alice@example.org")
    operator, secret = with_totp(alice)
    assert operator.get("/admin/").status_code == 200
    assert thief.get("/api/v1/me").status_code == 401
    assert "account.sessions_ended" in verbs(alice)
    again, _ = log_in("alice@example.org")
    assert again.get("/admin/").status_code == 302
    again.post("/account/mfa/authenticate/", {"code": code_now(secret)})
    assert again.get("/admin/").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_session_older_than_the_factor_shows_a_code_to_enter_the_admin(settings, alice: Person):
    settings.JOYNEXUS_OPERATOR_MFA = True
    User.objects.filter(pk=alice.user.pk).update(is_staff=True, is_superuser=True)
    browser, secret = with_totp(alice)
    session = browser.session
    del session["account_authentication_methods"]
    session.save()
    assert browser.get("/admin/").status_code == 302
    answer = browser.post("/account/mfa/reauthenticate/?next=/admin/", {"code": code_now(secret)})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert browser.get("/admin/").status_code == 200


def test_the_admins_log_in_is_the_one_with_limits(client: Client, alice: Person):
    assert client.get("/admin/login/")["Location"].startswith("/login/")
    assert client.post("/admin/login/", {"username": "alice@example.org", "password": PASSWORD}).status_code == 302
    assert client.get("/api/v1/me").status_code == 401
    assert alice.browser().get("/admin/login/").status_code == 403


def test_who_lost_phone_and_codes_is_let_in_again_by_an_operator_and_that_is_told(alice: Person):
    browser, _ = with_totp(alice)
    call_command("reset_second_factor", "Alice@example.org", reason="seen in person")
    assert browser.get("/api/v1/me").status_code == 401
    assert log_in("alice@example.org")[1]["Location"] == "/"
    told = alice.api.get("/api/v1/audit?verb=account.mfa_reset").json()["results"]
    assert [(event["actor_kind"], event["reason"]) for event in told] == [("system", "seen in person")]
    for email in ("alice@example.org", "nobody@example.org"):
        with pytest.raises(CommandError):
            call_command("reset_second_factor", email, reason="again")


def test_the_admin_shows_nobodys_factors_and_sessions(client: Client):
    client.force_login(UserFactory(is_staff=True, is_superuser=True))
    for table in ("mfa/authenticator", "usersessions/usersession", "account/emailaddress"):
        assert client.get(f"/admin/{table}/").status_code == 404
    assert client.get("/admin/tenants/user/").status_code == 200
