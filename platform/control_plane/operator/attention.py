"""What an operator should look at now, each with the page that helps. Every look is a fixed number of queries."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import Count, Min, Q
from django.urls import reverse
from django.utils import timezone

from control_plane.operator.limits_near import tenants_near_limits
from control_plane.templatetags.operator import age
from jobs.models import Job, OutboxMessage
from jobs.selectors.runtime import RuntimeState, runtime_report
from jobs.states import JobState
from tenants.billing.models import ReconciliationDifference, ReconciliationRun
from tenants.models import Tenant, TenantState
from tenants.webhooks.models import DeliveryState, WebhookDelivery, WebhookEndpoint

RECONCILE_EVERY = timedelta(hours=26)  # nightly, with two hours to spare
BACKLOG_IS_LATE = timedelta(minutes=1)
LOOK_BACK = timedelta(days=1)


class Tone(StrEnum):
    """How much it matters, in the words of the page's labels."""

    BAD = "bad"  # something is wrong now
    WARN = "warn"  # will be, or wants a look


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """One thing to look at."""

    tone: Tone
    text: str
    address: str


_OUT_OF_USE = {"stopped": Tone.BAD, "draining": Tone.WARN}  # states of a service that take no new work


def matters() -> list[Matter]:
    """Everything that needs attention, worst first. Empty: nothing does."""
    now = timezone.now()
    found = [*_runtime(), *_books(now), *_backlog(now), *_jobs(now), *_webhooks(now), *_tenants()]
    return sorted(found, key=lambda matter: matter.tone is not Tone.BAD)


def _runtime() -> Iterator[Matter]:
    report, page = runtime_report(), reverse("admin:operator_runtime")
    if report.state is not RuntimeState.READY:
        reason = f": {report.reason}" if report.reason else ""
        text = f"The runtime is {report.state.replace('_', ' ')}{reason}; last seen {age(report.seen_at)} ago."
        yield Matter(tone=Tone.BAD, text=text.replace("never ago", "never"), address=page)
    for service in report.services:
        if service["state"] in _OUT_OF_USE:
            reason = service["reason"] or "no reason given"
            text = f"The {service['service']} service is {service['state']}: {reason}."
            yield Matter(tone=_OUT_OF_USE[service["state"]], text=text, address=page)


def _books(now: datetime) -> Iterator[Matter]:
    unseen = ReconciliationDifference.objects.filter(seen_at=None).count()
    if unseen:
        address = reverse("admin:operator_reconciliation")
        yield Matter(tone=Tone.BAD, text=f"Reconciliation differences nobody has seen: {unseen}.", address=address)
    newest = ReconciliationRun.objects.order_by("-started_at").values_list("started_at", flat=True).first()
    if newest is None or now - newest > RECONCILE_EVERY:
        text = "The books were never reconciled." if newest is None else f"Last reconciled {age(newest)} ago."
        yield Matter(tone=Tone.WARN, text=text, address=reverse("admin:operator_reconciliation"))


def _backlog(now: datetime) -> Iterator[Matter]:
    unsent = OutboxMessage.objects.filter(sent_at=None).aggregate(count=Count("pk"), oldest=Min("created_at"))
    if unsent["count"] and now - unsent["oldest"] > BACKLOG_IS_LATE:
        text = f"Messages that wait for the broker: {unsent['count']}, the oldest for {age(unsent['oldest'])}."
        yield Matter(tone=Tone.BAD, text=text, address=reverse("admin:operator_runtime"))


def _jobs(now: datetime) -> Iterator[Matter]:
    failed = Job.objects.filter(state=JobState.FAILED, finished_at__gte=now - LOOK_BACK).count()
    if failed:
        address = reverse("admin:jobs_job_changelist", query={"state__exact": JobState.FAILED.value})
        yield Matter(tone=Tone.WARN, text=f"Jobs that failed in the last day: {failed}.", address=address)


def _webhooks(now: datetime) -> Iterator[Matter]:
    failing = WebhookEndpoint.objects.filter(disabled_at=None).exclude(failing_since=None).count()
    if failing:
        address = reverse("admin:webhooks_webhookendpoint_changelist", query={"failing_since__isempty": "0"})
        yield Matter(tone=Tone.WARN, text=f"Webhook endpoints that are failing: {failing}.", address=address)
    given_up = WebhookDelivery.objects.filter(state=DeliveryState.FAILED, created_at__gte=now - LOOK_BACK).count()
    if given_up:
        address = reverse("admin:webhooks_webhookdelivery_changelist", query={"state__exact": "failed"})
        yield Matter(
            tone=Tone.WARN, text=f"Webhook deliveries of the last day that failed: {given_up}.", address=address
        )


def _tenants() -> Iterator[Matter]:
    paused = Tenant.objects.filter(state=TenantState.PAUSED).count()
    if paused:
        address = reverse("admin:tenants_tenant_changelist", query={"state__exact": TenantState.PAUSED.value})
        yield Matter(tone=Tone.WARN, text=f"Paused tenants: {paused}.", address=address)
    for near in tenants_near_limits():
        address = reverse("admin:operator_tenant", args=[near.tenant.pk])
        tone = Tone.BAD if near.used >= near.limit else Tone.WARN
        yield Matter(tone=tone, text=f"{near.tenant.name}: {near.words}.", address=address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Jobs that wait, and those under way."""

    queued: int
    under_way: int
    oldest: datetime | None


def queue_now() -> Queue:
    under_way = Q(state__in=[JobState.STARTING, JobState.RUNNING, JobState.CANCELLING])
    counts = Job.objects.filter(under_way | Q(state=JobState.QUEUED)).aggregate(
        queued=Count("pk", filter=Q(state=JobState.QUEUED)),
        under_way=Count("pk", filter=under_way),
        oldest=Min("created_at", filter=Q(state=JobState.QUEUED)),
    )
    return Queue(**counts)
