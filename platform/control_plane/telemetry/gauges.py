"""Gauges of the platform, read from the database when asked: any process may be asked and all say the same."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count, Min, Sum
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpu_runtime.protocol.messages import RuntimeStatus
from jobs.models import Job, OutboxMessage, RuntimeCursor, RuntimeSnapshot
from jobs.states import LIVE, JobState
from tenants.billing.models import ReconciliationRun
from tenants.quotas.models import StorageAccount
from tenants.scope import platform_scope
from tenants.webhooks.models import DeliveryState, WebhookDelivery, WebhookEndpoint


class PlatformCollector(Collector):
    """Everything that a person on call looks at first. No label names a tenant."""

    def collect(self) -> Iterator[Metric]:
        now = timezone.now()
        with platform_scope():
            yield from _jobs(now)
            yield from _outbox(now)
            yield from _runtime(now)
            yield from _books(now)
            yield from _webhooks(now)
            yield from _storage()


def _jobs(now: datetime) -> Iterator[Metric]:
    counts = dict(Job.objects.filter(state__in=LIVE).values_list("state").annotate(Count("pk")).order_by())
    jobs = GaugeMetricFamily("joynexus_jobs", "Jobs that have not ended, by state.", labels=["state"])
    for state in sorted(LIVE):
        jobs.add_metric([state], counts.get(state, 0))
    yield jobs
    oldest = Job.objects.filter(state=JobState.QUEUED).aggregate(at=Min("created_at"))["at"]
    yield _gauge(
        "joynexus_jobs_oldest_queued_seconds", "Age of the job that waits longest; 0: none.", _age(now, oldest)
    )


def _outbox(now: datetime) -> Iterator[Metric]:
    unsent = OutboxMessage.objects.filter(sent_at=None).aggregate(count=Count("pk"), at=Min("created_at"))
    yield _gauge("joynexus_outbox_unsent", "Messages not handed to the broker yet.", unsent["count"])
    yield _gauge("joynexus_outbox_oldest_seconds", "Age of the oldest of them; 0: none.", _age(now, unsent["at"]))


def _runtime(now: datetime) -> Iterator[Metric]:
    """What the runtime said last. Nothing before it was seen for the first time: absence is what to alert on."""
    applied = RuntimeCursor.objects.aggregate(total=Sum("last_seq"))["total"] or 0
    yield _counter("joynexus_journal_entries_ingested", "Entries of runtimes' journals that took effect.", applied)
    snapshot = RuntimeSnapshot.objects.order_by("-seen_at").first()
    if snapshot is None:
        return
    status = RuntimeStatus.model_validate(snapshot.status)
    yield _gauge("joynexus_runtime_seen_age_seconds", "Since the runtime was last seen.", _age(now, snapshot.seen_at))
    yield _gauge("joynexus_runtime_accepting", "1: the runtime takes new work.", int(status.accepting))
    cursor = RuntimeCursor.objects.filter(journal_id=snapshot.journal_id).values_list("last_seq", flat=True).first()
    lag = max(0, status.last_seq - (cursor or 0))
    yield _gauge("joynexus_relay_lag_entries", "Journal entries the relay had yet to bring, when last looked.", lag)
    busy = GaugeMetricFamily("joynexus_service_busy_share", "Busy share of a service, measured.", labels=["service"])
    depth = GaugeMetricFamily("joynexus_service_queue_depth", "Requests waiting at a service.", labels=["service"])
    for service in status.services:
        busy.add_metric([service.service], service.busy_share)
        depth.add_metric([service.service], service.queue_depth)
    yield busy
    yield depth


def _books(now: datetime) -> Iterator[Metric]:
    run = ReconciliationRun.objects.exclude(finished_at=None).order_by("-finished_at").first()
    if run is None:
        return
    yield _gauge(
        "joynexus_reconciliation_differences", "Of the newest reconciliation; not 0: look.", run.difference_count
    )
    yield _gauge("joynexus_reconciliation_age_seconds", "Since it ended.", _age(now, run.finished_at))


def _webhooks(now: datetime) -> Iterator[Metric]:
    waiting = WebhookDelivery.objects.filter(state=DeliveryState.WAITING)
    due = waiting.filter(next_try_at__lte=now).aggregate(count=Count("pk"), at=Min("next_try_at"))
    yield _gauge("joynexus_webhooks_waiting", "Deliveries waiting for a try, due or not.", waiting.count())
    yield _gauge("joynexus_webhooks_due", "Deliveries whose next try is due.", due["count"])
    yield _gauge("joynexus_webhooks_due_seconds", "How long the oldest has been due; 0: none.", _age(now, due["at"]))
    failing = WebhookEndpoint.objects.filter(disabled_at=None).exclude(failing_since=None).count()
    yield _gauge("joynexus_webhook_endpoints_failing", "Endpoints whose last delivery failed.", failing)


def _storage() -> Iterator[Metric]:
    sums = StorageAccount.objects.aggregate(used=Sum("used_bytes"), reserved=Sum("reserved_bytes"))
    held = GaugeMetricFamily("joynexus_storage_bytes", "Bytes of all tenants.", labels=["kind"])
    for kind, total in sums.items():
        held.add_metric([kind], total or 0)
    yield held


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)


def _age(now: datetime, at: datetime | None) -> float:
    return max(0.0, (now - at).total_seconds()) if at is not None else 0.0
