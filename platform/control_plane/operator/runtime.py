"""Health of the runtime and of the ways to it: services, journals, relay, outbox, broker."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.db.models import Count, Min
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from control_plane.operator.acts import Act, ActForm, acts_by_name, is_done, offers, sent_act
from control_plane.operator.attention import queue_now
from control_plane.operator.broker import broker_now
from control_plane.operator.screens import framed, screen
from gpu_runtime.protocol.services import Service
from jobs.models import OutboxMessage, RuntimeCursor, RuntimeSnapshot
from jobs.selectors.runtime import RuntimeReport, runtime_report
from jobs.services.drain import service_drain, service_undrain
from tenants.models import User

JOURNALS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """How far the relay is behind one runtime's journal. ``lag`` in entries; None: that runtime told no position."""

    journal_id: str
    applied: int
    written: int | None
    applied_at: datetime
    seen_at: datetime | None

    @property
    def lag(self) -> int | None:
        return None if self.written is None else max(0, self.written - self.applied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Messages of one topic that no broker has taken yet."""

    topic: str
    count: int
    oldest: datetime


class DrainForm(ActForm):
    service = forms.ChoiceField(choices=[(service.value, service.value) for service in Service])
    reason = forms.CharField(max_length=500, help_text="Tenants whose jobs wait for it can read it.")


class UndrainForm(ActForm):
    service = forms.ChoiceField(choices=[(service.value, service.value) for service in Service])
    reason = forms.CharField(max_length=500)


def _drain(by: User, report: RuntimeReport, data: dict[str, Any]) -> str:
    service_drain(by=by, service=data["service"], reason=data["reason"])
    return f"The {data['service']} service takes no new jobs; what runs goes on to its end."


def _undrain(by: User, report: RuntimeReport, data: dict[str, Any]) -> str:
    service_undrain(by=by, service=data["service"], reason=data["reason"])
    return f"The {data['service']} service takes new jobs again."


def _is_drained(report: RuntimeReport) -> bool:
    return any(service["state"] == "draining" for service in report.services)


DRAIN = "jobs.change_runtimesnapshot"
ACTS = acts_by_name(
    Act(name="drain", title="Drain a service", permission=DRAIN, form=DrainForm, do=_drain, button="Take no new jobs"),
    Act(
        name="undrain",
        title="End a drain",
        permission=DRAIN,
        form=UndrainForm,
        do=_undrain,
        button="Take new jobs again",
        offered=_is_drained,
    ),
)


@screen("jobs.view_runtimesnapshot")
def runtime_page(request: HttpRequest) -> HttpResponse:
    """The form of an act is sent to the page itself, as ``act``; done, it leads back."""
    report = runtime_report()
    sent = sent_act(request, ACTS, report)
    if sent is not None and is_done(request, sent):
        return HttpResponseRedirect(request.path)
    return framed(
        request,
        "runtime.html",
        "Runtime",
        report=report,
        offers=offers(request, ACTS, report, sent),
        sent=sent.act.name if sent else "",
        queue=queue_now(),
        journals=journals(),
        backlog=backlog(),
        broker=broker_now(),
    )


def journals() -> list[Journal]:
    """Newest first. A journal is a life of a runtime: more than one means that it was restarted on empty disks."""
    seen = {row.journal_id: row for row in RuntimeSnapshot.objects.order_by("-seen_at")[:JOURNALS_SHOWN]}
    return [
        Journal(
            journal_id=cursor.journal_id,
            applied=cursor.last_seq,
            written=seen[cursor.journal_id].status.get("last_seq") if cursor.journal_id in seen else None,
            applied_at=cursor.updated_at,
            seen_at=seen[cursor.journal_id].seen_at if cursor.journal_id in seen else None,
        )
        for cursor in RuntimeCursor.objects.order_by("-updated_at")[:JOURNALS_SHOWN]
    ]


def backlog() -> list[Backlog]:
    waiting = OutboxMessage.objects.filter(sent_at=None).values("topic")
    rows = waiting.annotate(count=Count("pk"), oldest=Min("created_at")).order_by("oldest")
    return [Backlog(topic=row["topic"], count=row["count"], oldest=row["oldest"]) for row in rows]
