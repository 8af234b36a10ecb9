"""The first page and the runtime's page of the operators' admin: what is wrong is said, with the way to it."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from control_plane.templatetags import operator as words
from jobs.models import Job, OutboxMessage, RuntimeCursor, RuntimeSnapshot
from jobs.services.outbox import DISPATCH_JOB
from tenants.billing.models import ReconciliationDifference, ReconciliationRun
from tenants.models import Tenant
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.control_plane.conftest import logged_in
from tests.support.factories import TenantFactory, UserFactory
from tests.support.jobs import make_job
from tests.support.story import Person, Story
from tests.support.usage import ingest
from tests.support.webhooks import make_delivery, make_webhook


def status(**changes: Any) -> dict[str, Any]:
    service = {"service": "training", "state": "busy", "busy_share": 0.5, "window_s": 60.0, "queue_depth": 3}
    return {
        "journal_id": "journal-1",
        "last_seq": 120,
        "accepting": True,
        "bases": [],
        "services": [service | changes.pop("service", {})],
        "active_jobs": 2,
        "starts": 4,
        "started_at_us": int((timezone.now() - timedelta(hours=3)).timestamp() * 1_000_000),
        "partition_bytes": 0,
    } | changes


@pytest.fixture
def healthy(db: None) -> RuntimeSnapshot:
    """A runtime seen just now, and books reconciled just now."""
    ReconciliationRun.objects.create(started_at=timezone.now(), finished_at=timezone.now(), by="nightly")
    RuntimeCursor.objects.create(journal_id="journal-1", last_seq=100)
    return RuntimeSnapshot.objects.create(journal_id="journal-1", status=status(), seen_at=timezone.now())


def first_page(browser: Client) -> str:
    return browser.get("/admin/").content.decode()


def test_where_nothing_is_wrong_nothing_is_said(operator: Client, healthy: RuntimeSnapshot):
    assert "Nothing needs attention." in first_page(operator)


def test_an_installation_that_never_ran_says_so(operator: Client):
    page = first_page(operator)
    assert "The runtime is never seen" in page
    assert "never reconciled" in page


def test_each_thing_that_is_wrong_is_said(operator: Client, healthy: RuntimeSnapshot, story: Story, olga: Any):
    run = ReconciliationRun.objects.get()
    ReconciliationDifference.objects.create(run=run, check_name="spans", subject="x", expected="1", found="2")
    healthy.status = status(service={"state": "stopped", "reason": "out of memory"})
    healthy.save()
    job = make_job(story.alice)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(state="failed", finished_at=timezone.now())
    make_job(story.bob)
    make_delivery(story.alice)
    make_webhook(story.charlie, failing_since=timezone.now())
    Tenant.objects.filter(pk=story.charlie.tenant.pk).update(state="paused")
    quota_set(by=olga, tenant=story.bob.tenant, resource=Resource.QUEUED_JOBS, limit=1)
    OutboxMessage.objects.all().delete()
    late = OutboxMessage.objects.create(topic=DISPATCH_JOB, key="1")
    OutboxMessage.objects.filter(pk=late.pk).update(created_at=timezone.now() - timedelta(minutes=7))
    page = first_page(operator)
    for said in (
        "Reconciliation differences nobody has seen: 1.",
        "The training service is stopped: out of memory.",
        "Jobs that failed in the last day: 1.",
        "Messages that wait for the broker: 1, the oldest for 7 min.",
        "Webhook endpoints that are failing: 1.",
        "Webhook deliveries of the last day that failed: 1.",
        "Paused tenants: 1.",
        "Alice&#x27;s lab: queued jobs 1 of 1.",
    ):
        assert said in page, said


def test_more_tenants_and_jobs_cost_no_more_queries(
    operator: Client, story: Story, healthy: RuntimeSnapshot, olga: Any
):
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert operator.get("/admin/").status_code == 200
        return len(seen)

    def crowd(count: int) -> None:
        for _ in range(count):
            quota_set(by=olga, tenant=TenantFactory(), resource=Resource.MONEY_PER_MONTH, limit=0)
            tenant = TenantFactory()
            quota_set(by=olga, tenant=tenant, resource=Resource.MONEY_PER_MONTH, limit=0)
            ingest(tenant, samples=10**6, occurred_at=timezone.now())

    crowd(2)
    queries()
    few = queries()
    crowd(10)
    assert queries() == few <= 25


def test_revenue_is_for_those_who_may_see_invoices(operator: Client, alice: Person, healthy: RuntimeSnapshot):
    ingest(alice.tenant, samples=10**6, occurred_at=timezone.now())
    assert "Usage this month" in first_page(operator)
    assert "Usage this month" not in first_page(logged_in(UserFactory(is_staff=True)))


def test_the_runtime_page_tells_services_lag_and_backlog(operator: Client, healthy: RuntimeSnapshot):
    OutboxMessage.objects.create(topic=DISPATCH_JOB, key="1")
    page = operator.get("/admin/runtime/").content.decode()
    for shown in ("Training", "50 %", "journal-1", ">20<", "dispatch_job", "jobs under way: 2", "restarts: 3"):
        assert shown in page, shown


def test_the_runtime_page_and_the_list_of_records_are_for_staff(alice: Person):
    for page in ("/admin/", "/admin/runtime/", "/admin/records/", "/admin/prices/"):
        for browser in (Client(), alice.browser()):
            assert browser.get(page).status_code in {302, 403}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1234.5"), "1,234.50 EUR"),
        (Decimal("0.00012345"), "0.00012 EUR"),
        (Decimal("-3"), "\N{MINUS SIGN}3.00 EUR"),
        (Decimal(0), "0.00 EUR"),
        (None, "–"),
    ],
)
def test_money_that_is_not_nothing_never_looks_like_nothing(value: Decimal | None, text: str):
    assert words.amount(value, "EUR") == text
