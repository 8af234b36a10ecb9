"""The tenant's screen of the operators' admin: what it shows; each act works, is audited, and needs its right."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.audit.models import AuditEvent
from tenants.billing.ledger.books import account_of
from tenants.billing.models import BillingMode, LedgerTransaction, PricePlan, TenantPlan
from tenants.models import Tenant, TenantState, User
from tenants.quotas.limits import limit_of
from tenants.quotas.models import Quota, Resource
from tenants.scope import platform_scope
from tests.control_plane.conftest import logged_in
from tests.support.factories import UserFactory
from tests.support.jobs import make_job
from tests.support.story import Person, Story
from tests.support.usage import ingest

ACTS = ["pause", "resume", "quota", "withdraw", "credit", "payment", "mode", "plan"]


def screen_of(tenant: Tenant) -> str:
    return f"/admin/tenant/{tenant.pk}/"


def send(browser: Client, tenant: Tenant, act: str, **fields: Any) -> Any:
    data = {f"{act}-{name}": value for name, value in fields.items()}
    return browser.post(screen_of(tenant), {"act": act, **data})


def acts_on(tenant: Tenant) -> list[AuditEvent]:
    with platform_scope():
        return list(AuditEvent.objects.filter(tenant=tenant, actor_kind="operator").order_by("pk"))


def test_the_screen_shows_money_limits_jobs_people_and_what_was_done(operator: Client, story: Story):
    alice = story.alice
    job = make_job(alice)
    ingest(alice.tenant, job_id=job.pk, samples=1000, occurred_at=timezone.now())
    send(operator, alice.tenant, "credit", amount="12.50", reason="a good start", reference="r-1")
    page = operator.get(screen_of(alice.tenant)).content.decode()
    for shown in (
        "12.50 EUR",
        "train.samples",
        "1,000",
        "0 B of 100 GB",
        "1 of 1,000",
        "push the cube",
        "alice@example.org",
        alice.key_row.prefix,
        "credit.granted",
        "a good start",
    ):
        assert shown in page, shown
    assert "charlie@example.org" not in page


def test_another_tenants_rows_and_more_rows_cost_no_more_queries(operator: Client, story: Story):
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert operator.get(screen_of(story.alice.tenant)).status_code == 200
        return len(seen)

    make_job(story.alice)
    queries()
    few = queries()
    for _ in range(12):
        make_job(story.alice)
        ingest(story.alice.tenant, occurred_at=timezone.now())
    assert queries() == few <= 45


def test_pausing_needs_a_reason_refuses_new_jobs_and_resuming_lets_them_in(operator: Client, alice: Person):
    tenant = alice.tenant
    refused = send(operator, tenant, "pause", reason="")
    assert refused.status_code == 200
    assert Tenant.objects.get(pk=tenant.pk).state == TenantState.ACTIVE
    assert send(operator, tenant, "pause", reason="unpaid since May").status_code == 302
    assert Tenant.objects.get(pk=tenant.pk).paused_reason == "unpaid since May"
    assert "Paused: unpaid since May" in operator.get(screen_of(tenant)).content.decode()
    assert send(operator, tenant, "resume", reason="paid").status_code == 302
    assert Tenant.objects.get(pk=tenant.pk).state == TenantState.ACTIVE
    assert [(act.verb, act.reason) for act in acts_on(tenant)] == [
        ("tenant.paused", "unpaid since May"),
        ("tenant.resumed", "paid"),
    ]


def test_a_raised_limit_counts_until_the_end_of_its_last_day(operator: Client, alice: Person):
    until = (timezone.now() + timedelta(days=3)).date()
    send(operator, alice.tenant, "quota", resource="running_jobs", limit=40, until=until, reason="conference week")
    with platform_scope():
        row = Quota.objects.get(tenant=alice.tenant)
    assert row.expires_at == datetime(until.year, until.month, until.day, 23, 59, 59, tzinfo=UTC)
    assert limit_of(alice.tenant, Resource.RUNNING_JOBS) == 40
    assert f"operator until {until}" in operator.get(screen_of(alice.tenant)).content.decode()
    send(operator, alice.tenant, "withdraw", resource="running_jobs", reason="over")
    assert limit_of(alice.tenant, Resource.RUNNING_JOBS) == 16
    assert [act.verb for act in acts_on(alice.tenant)] == ["quota.set", "quota.withdrawn"]


def test_what_a_service_refuses_is_said_at_the_form_and_nothing_is_done(operator: Client, alice: Person):
    yesterday = (timezone.now() - timedelta(days=1)).date()
    answer = send(operator, alice.tenant, "quota", resource="slots", limit=5, until=yesterday, reason="late")
    assert answer.status_code == 200
    assert "must lie in the future" in answer.content.decode()
    assert acts_on(alice.tenant) == []


def test_a_form_sent_twice_grants_its_credit_once(operator: Client, alice: Person):
    for _ in range(2):
        sent = send(operator, alice.tenant, "credit", amount="100", reason="pilot", reference="operator-1")
        assert sent.status_code == 302
    assert account_of(alice.tenant).credit == Decimal(100)
    with platform_scope():
        assert LedgerTransaction.objects.filter(tenant=alice.tenant).count() == 1
    assert [act.verb for act in acts_on(alice.tenant)] == ["credit.granted"]


@pytest.mark.parametrize("amount", ["0", "-5", "1.005", "1000000.01", "NaN", "ten"])
def test_an_amount_that_makes_no_sense_moves_nothing(operator: Client, alice: Person, amount: str):
    assert send(operator, alice.tenant, "credit", amount=amount, reason="x", reference="r").status_code == 200
    assert account_of(alice.tenant).credit == 0


def test_a_payment_is_booked_by_the_banks_reference(operator: Client, alice: Person):
    send(operator, alice.tenant, "payment", amount="50", reference="bank 17")
    assert account_of(alice.tenant).credit == Decimal(50)
    assert [act.verb for act in acts_on(alice.tenant)] == ["payment.recorded"]


def test_a_tenant_can_pay_before(operator: Client, alice: Person):
    assert send(operator, alice.tenant, "mode", mode="prepaid", reason="their wish").status_code == 302
    assert account_of(alice.tenant).mode == BillingMode.PREPAID


def test_a_plan_begins_in_the_future(operator: Client, alice: Person):
    plan = PricePlan.objects.get(code="standard")
    past = send(operator, alice.tenant, "plan", plan=plan.pk, valid_from="2020-01-01T00:00", reason="x")
    assert past.status_code == 200
    sent = send(operator, alice.tenant, "plan", plan=plan.pk, valid_from="2100-01-01T00:00", reason="contract")
    assert sent.status_code == 302
    with platform_scope():
        assert TenantPlan.objects.get(tenant=alice.tenant).valid_from == datetime(2100, 1, 1, tzinfo=UTC)
    assert [act.verb for act in acts_on(alice.tenant)] == ["plan.assigned"]


@pytest.mark.parametrize("act", ACTS)
def test_who_may_only_look_is_offered_no_act_and_can_do_none(act: str, onlooker: Client, alice: Person):
    assert 'name="act"' not in onlooker.get(screen_of(alice.tenant)).content.decode()
    assert send(onlooker, alice.tenant, act, reason="x", amount="1", reference="r").status_code == 403
    assert acts_on(alice.tenant) == []


def test_one_right_offers_one_kind_of_act(alice: Person):
    user = UserFactory(is_staff=True)
    rights = Permission.objects.filter(codename__in=["view_tenant", "add_quota"])
    user.user_permissions.set(rights)
    page = logged_in(User.objects.get(pk=user.pk)).get(screen_of(alice.tenant)).content.decode()
    assert 'value="quota"' in page
    assert 'value="credit"' not in page


def test_an_unknown_act_and_an_unknown_tenant_are_missing_pages(operator: Client, alice: Person):
    assert send(operator, alice.tenant, "delete").status_code == 404
    assert operator.get("/admin/tenant/00000000-0000-0000-0000-000000000000/").status_code == 404


def test_members_and_strangers_get_no_screen(alice: Person, bob: Person):
    for browser in (Client(), alice.browser(), bob.browser()):
        for answer in (browser.get(screen_of(alice.tenant)), send(browser, alice.tenant, "pause", reason="x")):
            assert answer.status_code in {302, 403}
    assert Tenant.objects.get(pk=alice.tenant.pk).state == TenantState.ACTIVE


def test_the_share_of_a_contended_device_is_changed_with_a_trace(operator: Client, alice: Person):
    page, form = f"/admin/tenants/tenant/{alice.tenant.pk}/change/", {"name": alice.tenant.name, "weight": "3"}
    assert "This field is required." in operator.post(page, form).content.decode()
    assert acts_on(alice.tenant) == []
    assert operator.post(page, form | {"reason": "they pay for three"}).status_code == 302
    (act,) = acts_on(alice.tenant)
    assert (act.verb, act.before, act.after) == ("tenant.changed", {"weight": 1}, {"weight": 3})
    assert act.reason == "they pay for three"
