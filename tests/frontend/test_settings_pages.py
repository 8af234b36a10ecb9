"""Settings by form: members, projects, keys, webhooks, the audit log; what is refused stands beside its form."""

import re
from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone

from tenants.audit.services import audit
from tenants.models import ApiKey, Invitation, Membership, Project
from tenants.scope import platform_scope
from tenants.webhooks.models import WebhookEndpoint
from tests.support.factories import ProjectFactory, make_key
from tests.support.story import Person, Story, api_client
from tests.support.webhooks import URL, make_delivery

pytestmark = pytest.mark.django_db


def html(person: Person, path: str) -> str:
    answer = person.browser().get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def member_of(person: Person) -> Membership:
    with platform_scope():
        return Membership.objects.get(user=person.user, tenant=person.tenant)


def test_an_invitation_is_sent_listed_and_taken_back(story: Story, django_capture_on_commit_callbacks):
    browser, form = story.alice.browser(), {"email": "Dora@example.org", "role": "viewer"}
    with django_capture_on_commit_callbacks(execute=True):
        answer = browser.post("/settings/members/", form, follow=True)
    assert "on its way" in answer.content.decode()
    assert mail.outbox[-1].to == ["dora@example.org"]
    assert "dora@example.org" in html(story.viewer, "/settings/members/")
    with platform_scope():
        row = Invitation.objects.get(email="dora@example.org")
    assert browser.post(f"/settings/invitations/{row.pk}/revoke/").status_code == 302
    assert "dora@example.org" not in html(story.alice, "/settings/members/")


def test_a_wrong_address_is_refused_beside_the_form_and_what_was_typed_stays(story: Story):
    answer = story.alice.browser().post("/settings/members/", {"email": "no address", "role": "viewer"})
    text = answer.content.decode()
    assert answer.status_code == 422
    assert 'data-pointer="/email"' in text
    assert 'value="no address"' in text


def test_a_role_is_changed_and_the_last_owner_stays(story: Story):
    browser = story.alice.browser()
    assert browser.post(f"/settings/members/{member_of(story.bob).pk}/role/", {"role": "viewer"}).status_code == 302
    assert member_of(story.bob).role == "viewer"
    own = member_of(story.alice)
    answer = browser.post(f"/settings/members/{own.pk}/role/", {"role": "viewer"})
    assert answer.status_code == 409
    assert "last owner" in answer.content.decode()
    assert browser.post(f"/settings/members/{own.pk}/remove/").status_code == 409
    assert member_of(story.alice).role == "owner"


def test_a_viewer_sees_members_and_no_form(story: Story):
    text = html(story.viewer, "/settings/members/")
    assert story.bob.user.email in text
    assert "Send invitation" not in text
    assert "/role/" not in text
    assert "API keys</a>" not in text


def test_a_key_is_shown_once_works_and_ends_when_it_is_revoked(story: Story):
    browser = story.bob.browser()
    form = {"name": "robot 3", "role": "researcher", "scopes": ["jobs:read"], "spend_cap": "5", "project": "default"}
    answer = browser.post("/settings/keys/", form)
    assert answer["Cache-Control"] == "no-store"
    (text,) = set(re.findall(r"jnx_[0-9a-f]{12}_[0-9a-zA-Z_-]{20,}", answer.content.decode()))
    api = api_client(text)
    assert api.get("/api/v1/jobs").status_code == 200
    assert api.get("/api/v1/usage").status_code == 403
    assert text not in html(story.bob, "/settings/keys/")
    with platform_scope():
        row = ApiKey.objects.get(name="robot 3")
    assert (row.spend_cap, row.project.slug) == (5, "default")
    assert browser.post(f"/settings/keys/{row.pk}/revoke/").status_code == 302
    assert api.get("/api/v1/jobs").status_code == 401
    assert "revoked" in html(story.bob, "/settings/keys/")


def test_a_last_day_is_the_whole_day_and_a_past_one_is_refused(story: Story):
    browser, today = story.alice.browser(), timezone.now().date()
    assert (
        browser.post("/settings/keys/", {"name": "a", "last_day": str(today + timedelta(days=2))}).status_code == 200
    )
    with platform_scope():
        ends = ApiKey.objects.get(name="a").expires_at
    assert (ends.date(), ends.hour, ends.minute) == (today + timedelta(days=2), 23, 59)
    answer = browser.post("/settings/keys/", {"name": "b", "last_day": str(today - timedelta(days=1))})
    assert answer.status_code == 422
    assert "/expires_at" in answer.content.decode()


def test_a_researcher_sees_the_own_keys_only_and_revokes_no_others(story: Story):
    other, _ = make_key(story.alice.tenant, "owner", story.alice.user)
    assert other.prefix not in html(story.bob, "/settings/keys/")
    assert story.bob.browser().post(f"/settings/keys/{other.pk}/revoke/").status_code == 404


def test_a_project_is_made_renamed_and_archived_and_the_default_one_stays(story: Story):
    browser = story.alice.browser()
    browser.post("/settings/projects/", {"name": "Kitchen work", "slug": ""})
    with platform_scope():
        row = Project.objects.get(tenant=story.alice.tenant, slug="kitchen-work")
        default = Project.objects.get(tenant=story.alice.tenant, slug="default")
    assert browser.post("/settings/projects/", {"name": "Other", "slug": "kitchen-work"}).status_code == 409
    browser.post(f"/settings/projects/{row.pk}/rename/", {"name": "<b>Kitchen</b>"})
    text = html(story.viewer, "/settings/projects/")
    assert "&lt;b&gt;Kitchen&lt;/b&gt;" in text
    browser.post(f"/settings/projects/{row.pk}/archive/")
    assert "archived" in html(story.viewer, "/settings/projects/")
    assert browser.post(f"/settings/projects/{default.pk}/archive/").status_code == 409


def test_an_endpoint_is_added_its_secret_shown_once_changed_switched_and_deleted(story: Story):
    browser = story.alice.browser()
    answer = browser.post("/settings/webhooks/", {"url": URL, "events": ["job.failed"]})
    (secret,) = set(re.findall(r"whsec_[0-9a-zA-Z+/=]+", answer.content.decode()))
    assert answer["Cache-Control"] == "no-store"
    assert secret not in html(story.alice, "/settings/webhooks/")
    with platform_scope():
        row = WebhookEndpoint.objects.get(tenant=story.alice.tenant)
    path = f"/settings/webhooks/{row.pk}"
    assert browser.post(f"{path}/change/", {"url": URL, "events": []}).status_code == 302
    assert browser.post(f"{path}/switch/", {"enabled": "no"}).status_code == 302
    assert browser.post(f"{path}/test/").status_code == 409
    with platform_scope():
        row.refresh_from_db()
    assert row.events == []
    assert row.disabled_at is not None
    again = browser.post(f"{path}/secret/").content.decode()
    assert secret not in again
    assert "whsec_" in again
    assert browser.post(f"{path}/delete/").status_code == 302
    with platform_scope():
        assert not WebhookEndpoint.objects.filter(tenant=story.alice.tenant).exists()


def test_a_change_that_is_refused_keeps_what_was_typed_in_its_own_form(story: Story):
    browser = story.alice.browser()
    browser.post("/settings/webhooks/", {"url": URL, "events": ["job.failed"]})
    browser.post("/settings/projects/", {"name": "Kitchen", "slug": ""})
    with platform_scope():
        endpoint = WebhookEndpoint.objects.get(tenant=story.alice.tenant)
        project = Project.objects.get(tenant=story.alice.tenant, slug="kitchen")
    typed = "https://127.0.0.1/typed"
    answer = browser.post(f"/settings/webhooks/{endpoint.pk}/change/", {"url": typed, "events": ["job.started"]})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert page.count(f'value="{typed}"') == 1
    assert re.findall(r'value="(job\.\w+)" checked', page) == ["job.started"]
    answer = browser.post(f"/settings/projects/{project.pk}/rename/", {"name": "x" * 201})
    assert answer.status_code == 422
    assert f'value="{"x" * 201}"' in answer.content.decode()


def test_an_address_inside_the_network_is_refused_by_name(story: Story):
    answer = story.alice.browser().post("/settings/webhooks/", {"url": "https://127.0.0.1/hook"})
    assert answer.status_code == 422
    assert 'data-pointer="/url"' in answer.content.decode()


def test_deliveries_are_listed_with_their_answers(story: Story):
    make_delivery(story.alice)
    assert "Newest deliveries" in html(story.alice, "/settings/webhooks/")


def test_the_audit_log_is_filtered_paged_and_tells_what_changed(story: Story):
    ProjectFactory(tenant=story.alice.tenant, slug="grasping")
    for number in range(60):
        audit(
            by=story.alice.actor, verb="project.renamed", target=story.alice.tenant, tenant=story.alice.tenant,
            name=f"project {number}", before={"name": f"old {number}"}, after={"name": f"<new> {number}"},
        )  # fmt: skip
    first = html(story.alice, "/settings/audit/?verb=project.")
    assert "project 59" in first
    assert "<del>old 59</del>" in first
    assert "&lt;new&gt; 59" in first
    assert "project 5<" not in first
    assert "project 5<" in html(story.alice, "/settings/audit/?verb=project.&page=2")
    assert "Nothing matches" in html(story.alice, "/settings/audit/?until=2001-01-01")
    today = timezone.now().date()
    assert "project 59" in html(story.alice, f"/settings/audit/?since={today}&until={today}&verb=project.renamed")
    assert "project 59" not in html(story.charlie, "/settings/audit/?verb=project.renamed")


@pytest.mark.parametrize("query", ["since=yesterday", "until=2026-13-45", "verb=" + "x" * 99])
def test_a_filter_that_cannot_be_read_is_refused_and_lists_nothing(story: Story, query: str):
    answer = story.alice.browser().get(f"/settings/audit/?{query}")
    assert answer.status_code == 422
    assert "data-refusal" in answer.content.decode()
    assert "account.logged_in" not in answer.content.decode()


@pytest.mark.parametrize("query", ["page=0", "page=last", "page=" + "9" * 30, "verb=%00", "actor=%ED%A0%80"])
def test_no_query_string_breaks_the_audit_log(story: Story, query: str):
    assert story.alice.browser().get(f"/settings/audit/?{query}").status_code == 200
