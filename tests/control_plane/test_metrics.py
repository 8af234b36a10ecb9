"""`/metrics`: who may read it, what it says, and that it names no tenant."""

import ipaddress
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from gpu_runtime.protocol.messages import RuntimeStatus, ServiceStatus
from jobs.models import OutboxMessage, RuntimeCursor, RuntimeSnapshot
from tenants.billing.models import ReconciliationRun
from tenants.quotas.models import StorageAccount
from tenants.scope import platform_scope
from tests.support.jobs import make_job
from tests.support.story import Person, Story
from tests.support.webhooks import make_delivery

pytestmark = pytest.mark.django_db
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def token(settings) -> str:
    settings.JOYNEXUS_METRICS_TOKEN = "scrape-me"
    return settings.JOYNEXUS_METRICS_TOKEN


def scrape() -> Samples:
    answer = Client().get("/metrics", headers={"Authorization": "Bearer scrape-me"})
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.content.decode())
    return {
        (item.name, tuple(sorted(item.labels.items()))): item.value for family in families for item in family.samples
    }


def value(name: str, **labels: str) -> float | None:
    return scrape().get((name, tuple(sorted(labels.items()))))


def test_strangers_learn_nothing(settings):
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "scrape-me"},
    ):
        answer = Client().get("/metrics", headers=headers)
        assert (answer.status_code, answer.content) == (401, b"")
    assert Client().post("/metrics").status_code == 405


def test_a_named_network_needs_no_token_but_a_wrong_token_is_never_forgiven(settings):
    settings.JOYNEXUS_METRICS_ALLOW = (ipaddress.ip_network("10.0.0.0/8"),)
    assert Client(REMOTE_ADDR="10.1.2.3").get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="11.1.2.3").get("/metrics").status_code == 401
    wrong = {"Authorization": "Bearer wrong"}
    assert Client(REMOTE_ADDR="10.1.2.3").get("/metrics", headers=wrong).status_code == 401


def test_requests_are_counted_and_timed_by_pattern_method_and_status(story: Story):
    labels = {"route": "/api/v1/jobs/<uuid:job_id>", "method": "GET", "status": "200"}
    job = make_job(story.alice)
    before = value("joynexus_http_requests_total", **labels) or 0
    for _ in range(3):
        assert story.alice.api.get(f"/api/v1/jobs/{job.pk}").status_code == 200
    assert value("joynexus_http_requests_total", **labels) == before + 3
    del labels["status"]
    assert value("joynexus_http_request_duration_seconds_count", **labels) >= before + 3


def test_what_nobody_handles_is_one_route_and_an_odd_method_one_label(anonymous):
    for name in ("a", "b", "c"):
        anonymous.get(f"/no-such-{name}")
        anonymous.generic(f"ODD{name}", "/api/v1/me")
    names = {labels for name, labels in scrape() if name == "joynexus_http_requests_total"}
    assert not [labels for labels in names if "no-such" in str(labels) or "ODD" in str(labels)]


def test_gauges_are_read_from_the_database(alice: Person):
    now = timezone.now()
    make_job(alice)
    make_delivery(alice, state="waiting", next_try_at=now - timedelta(seconds=30))
    OutboxMessage.objects.update(sent_at=now)
    OutboxMessage.objects.create(topic="dispatch_job", key="1")
    service = ServiceStatus(service="training", state="busy", busy_share=0.75, window_s=10, queue_depth=4)
    status = RuntimeStatus(
        journal_id="j-1", last_seq=50, accepting=True, bases=(), services=(service,), active_jobs=1, partition_bytes=0
    )
    seen_at = now - timedelta(seconds=20)
    RuntimeSnapshot.objects.create(journal_id="j-1", status=status.model_dump(mode="json"), seen_at=seen_at)
    RuntimeCursor.objects.create(journal_id="j-1", last_seq=42)
    RuntimeCursor.objects.create(journal_id="j-0", last_seq=100)
    ReconciliationRun.objects.create(started_at=now, finished_at=now, by="nightly", difference_count=3)
    with platform_scope():
        StorageAccount.objects.filter(tenant=alice.tenant).delete()
        StorageAccount.objects.create(tenant=alice.tenant, used_bytes=7, reserved_bytes=2, accrued_at=now)
        expected = StorageAccount.objects.exclude(tenant=alice.tenant).count()
    assert expected == 0
    found = scrape()

    def plain(name: str, **labels: str) -> float:
        return found[(f"joynexus_{name}", tuple(sorted(labels.items())))]

    assert plain("jobs", state="queued") == 1
    assert plain("jobs", state="running") == 0
    assert 0 <= plain("jobs_oldest_queued_seconds") < 60
    assert plain("outbox_unsent") == 1
    assert plain("journal_entries_ingested_total") == 142
    assert plain("relay_lag_entries") == 8
    assert 20 <= plain("runtime_seen_age_seconds") < 60
    assert plain("runtime_accepting") == 1
    assert plain("service_busy_share", service="training") == 0.75
    assert plain("service_queue_depth", service="training") == 4
    assert plain("reconciliation_differences") == 3
    assert plain("webhooks_waiting") == plain("webhooks_due") == 1
    assert 30 <= plain("webhooks_due_seconds") < 90
    assert plain("storage_bytes", kind="used") == 7
    assert plain("storage_bytes", kind="reserved") == 2


def test_a_runtime_nobody_ever_saw_has_no_gauge():
    assert value("joynexus_runtime_seen_age_seconds") is None
    assert value("joynexus_jobs", state="queued") == 0


def test_no_label_names_a_tenant_a_job_or_a_person(story: Story):
    job = make_job(story.alice)
    story.alice.api.get(f"/api/v1/jobs/{job.pk}")
    story.alice.browser().get(f"/jobs/{job.pk}/")
    labels = str([labels for _, labels in scrape()])
    for secret in (str(story.alice.tenant.pk), story.alice.tenant.slug, str(job.pk), "alice"):
        assert secret not in labels
