"""Every list of the operators' admin: who gets in, how many queries, what can be written, and its CSV."""

import csv
import io
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.db import connection, models
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tenants.admin_base import ReadOnly
from tenants.append_only import AppendOnly
from tenants.audit.models import AuditEvent
from tenants.billing import models as billing
from tenants.models import Tenant, User
from tenants.quotas.limits import limit_of
from tenants.quotas.models import DefaultQuota, Resource
from tenants.scope import platform_scope
from tests.support.factories import TenantFactory, make_key
from tests.support.jobs import make_job
from tests.support.story import Person, Story
from tests.support.usage import ingest

LISTED = sorted((model._meta.label_lower for model in admin.site._registry), key=str)
MONEY = sorted(
    model._meta.label_lower
    for model in admin.site._registry
    if issubclass(model, AppendOnly) or model._meta.app_label == "billing"
)


def address(label: str, page: str = "changelist", *arguments: Any) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_{page}", args=arguments)


def body(answer: Any) -> str:
    return b"".join(answer).decode()


def exported(browser: Client, label: str, *rows: models.Model, **more: str) -> list[list[str]]:
    data = {"action": "export_as_csv", "_selected_action": [str(row.pk) for row in rows]} | more
    answer = browser.post(address(label), data)
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.reader(io.StringIO(body(answer))))


def test_every_kind_of_row_of_billing_is_listed():
    kinds = {row for row in vars(billing).values() if isinstance(row, type) and issubclass(row, models.Model)}
    unlisted = {kind.__name__ for kind in kinds if not kind._meta.abstract} - {
        model.__name__ for model in admin.site._registry
    }
    assert unlisted == {"InvoiceLine", "InvoiceSequence"}  # the lines are on their invoice's page


@pytest.mark.parametrize("label", LISTED)
def test_strangers_and_tenants_are_sent_to_the_log_in(label: str, alice: Person):
    for browser in (Client(), alice.browser()):
        answer = browser.get(address(label))
        assert answer.status_code == 302
        assert "/login/" in answer["Location"]


@pytest.mark.parametrize("label", LISTED)
def test_a_list_opens_for_operators_and_not_for_staff_without_permission(
    label: str, operator: Client, onlooker: Client, olga: User
):
    assert operator.get(address(label)).status_code == 200
    assert onlooker.get(address(label)).status_code == 200
    User.objects.filter(pk=olga.pk).update(is_superuser=False)
    assert operator.get(address(label)).status_code == 403


@pytest.mark.parametrize("label", MONEY)
def test_money_and_whatever_is_append_only_offers_no_way_to_write(label: str, operator: Client, rf: Any, olga: User):
    screen = next(row for model, row in admin.site._registry.items() if model._meta.label_lower == label)
    request = rf.get("/")
    request.user = olga
    assert isinstance(screen, ReadOnly)
    assert not screen.has_add_permission(request)
    assert not screen.has_change_permission(request)
    assert not screen.has_delete_permission(request)
    assert operator.post(address(label, "add"), {}).status_code == 403
    assert "delete_selected" not in screen.get_actions(request)


@pytest.mark.parametrize(
    "label",
    [
        "jobs.job",
        "jobs.outboxmessage",
        "audit.auditevent",
        "billing.usageevent",
        "billing.ratedusage",
        "billing.usagerollup",
        "billing.ledgertransaction",
        "billing.ledgerentry",
        "datasets.datasetversion",
        "tenants.apikey",
    ],
)
def test_a_list_takes_as_many_queries_for_forty_rows_as_for_four(label: str, operator: Client, story: Story):
    def fill(count: int) -> None:
        for _ in range(count):
            make_key(story.alice.tenant, user=story.bob.user)
            ingest(story.alice.tenant)
            make_job(story.alice)

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert operator.get(address(label)).status_code == 200
        return len(seen)

    fill(4)
    queries()
    few = queries()
    fill(36)
    assert queries() == few <= 12


def test_a_list_of_a_thousand_tenants_rows_does_not_load_the_tenants(operator: Client, alice: Person):
    Tenant.objects.bulk_create(Tenant(name=f"Many {number}", slug=f"many-{number}") for number in range(300))
    page = operator.get(address("jobs.job")).content.decode()
    assert "Many 1" not in page
    make_job(alice)
    own = operator.get(address("jobs.job"), {"tenant_slug": alice.tenant.slug}).content.decode()
    assert "push the cube" in own
    assert "push the cube" not in operator.get(address("jobs.job"), {"tenant_slug": "many-1"}).content.decode()


def test_a_csv_has_the_columns_of_the_list_and_guards_against_formulas(operator: Client):
    mean = TenantFactory(name='=HYPERLINK("http://x")')
    titles, row = exported(operator, "tenants.tenant", mean)
    assert titles == ["Name", "Slug", "State", "Currency", "Weight", "Created at"]
    assert row[0] == '\'=HYPERLINK("http://x")'
    assert row[1] == mean.slug


def test_a_csv_of_everything_reads_by_key_and_in_pages(
    operator: Client, monkeypatch: pytest.MonkeyPatch, alice: Person
):
    monkeypatch.setattr("control_plane.operator.csv_export.ROWS_PER_QUERY", 10)
    keys = [make_key(alice.tenant)[0] for _ in range(65)]
    with CaptureQueriesContext(connection) as seen:
        rows = exported(operator, "tenants.apikey", keys[0], select_across="1")
    assert {key.prefix for key in keys} < {row[0] for row in rows[1:]}
    reads = [query["sql"] for query in seen if "LIMIT 10" in query["sql"]]
    assert len(reads) == len(rows[1:]) // 10 + 1
    assert not any("OFFSET" in sql for sql in reads)


def test_a_csv_has_money_in_full_and_no_secret(operator: Client, alice: Person):
    rated = ingest(alice.tenant, samples=1)[1].rated
    titles, row = exported(operator, "billing.ratedusage", rated)
    assert row[titles.index("Amount")] == f"{rated.amount:f}"
    assert alice.key_row.secret_sha256 not in str(exported(operator, "tenants.apikey", alice.key_row))


@pytest.mark.parametrize(
    ("label", "hidden"),
    [
        ("tenants.apikey", {"secret_sha256"}),
        ("tenants.invitation", {"token_sha256"}),
        ("webhooks.webhookendpoint", {"secret", "former_secret"}),
    ],
)
def test_secrets_are_on_no_page(label: str, hidden: set[str], rf: Any, olga: User):
    screen = next(row for model, row in admin.site._registry.items() if model._meta.label_lower == label)
    request = rf.get("/")
    request.user = olga
    with platform_scope():
        assert hidden.isdisjoint(screen.get_fields(request))
    assert hidden.isdisjoint(screen.get_list_display(request))


def test_what_packages_register_is_not_listed(operator: Client):
    assert {"account.emailaddress", "mfa.authenticator"}.isdisjoint(LISTED)


def test_rights_are_given_by_groups_by_superusers_only_and_with_a_trace(
    operator: Client, onlooker: Client, olga: User
):
    right = Permission.objects.get(codename="add_quota")
    new = {"name": "support", "permissions": [right.pk]}
    assert operator.post(address("auth.group", "add"), new).status_code == 200, "nobody said why"
    assert operator.post(address("auth.group", "add"), new | {"reason": "first line"}).status_code == 302
    group = Group.objects.get(name="support")
    otto = User.objects.get(email="otto@platform.example")
    form = {"is_active": "on", "is_staff": "on", "groups": [group.pk], "reason": "Otto joins them"}
    assert onlooker.post(address("tenants.user", "change", otto.pk), form).status_code == 403
    assert operator.post(address("tenants.user", "change", otto.pk), form).status_code == 302
    assert User.objects.get(pk=otto.pk).has_perm("quotas.add_quota")
    with platform_scope():
        acts = list(AuditEvent.objects.order_by("pk").values_list("verb", "reason", "after"))
    assert [act[:2] for act in acts] == [("group.created", "first line"), ("user.changed", "Otto joins them")]
    assert acts[1][2] == {"groups": ["support"]}


def test_the_platforms_limit_is_changed_by_its_service_and_written_down(
    operator: Client, onlooker: Client, alice: Person
):
    row = DefaultQuota.objects.get(resource=Resource.RUNNING_JOBS)
    page = address("quotas.defaultquota", "change", row.pk)
    assert onlooker.post(page, {"limit": "1"}).status_code == 403
    assert operator.post(page, {"limit": "24"}).status_code == 200, "nobody said why"
    assert operator.post(page, {"limit": "24", "reason": "a second node"}).status_code == 302
    assert limit_of(alice.tenant, Resource.RUNNING_JOBS) == 24
    assert operator.post(address("quotas.defaultquota", "delete", row.pk), {"post": "yes"}).status_code == 403
    with platform_scope():
        act = AuditEvent.objects.get(verb="default_quota.set")
    assert act.reason == "a second node"
    assert (act.before, act.after) == (
        {"resource": "running_jobs", "limit": 16},
        {"resource": "running_jobs", "limit": 24},
    )


def test_the_audit_log_is_searched_by_tenant_actor_verb_and_object(operator: Client, story: Story):
    job = make_job(story.alice)
    make_job(story.charlie)

    def found(**wanted: str) -> int:
        return operator.get(address("audit.auditevent"), wanted).context["cl"].result_count

    everything = found()
    assert found(tenant_slug=story.charlie.tenant.slug) == 1
    assert found(actor="alice@") == 1
    assert found(verb_begins="job.") == everything == 2
    assert found(object=str(job.pk)) == 1
    assert found(object=str(job.pk), tenant_slug=story.charlie.tenant.slug) == 0
    assert found(verb_begins="member.") == 0
    page = operator.get(address("audit.auditevent"), {"object": "x", "q": "y"}).content.decode()
    assert '<input type="hidden" name="q" value="y">' in page  # a filter keeps the others
    assert '<input type="hidden" name="object" value="x">' in page


def test_a_password_is_changed_where_everybody_changes_theirs(operator: Client):
    assert operator.get("/admin/password_change/")["Location"] == reverse("account_change_password")
