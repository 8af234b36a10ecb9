"""Reconciliation: the runs, what the newest compared, and the differences that nobody has looked at."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from control_plane.operator.acts import Act, ActForm, acts_by_name, is_done, offers, sent_act
from control_plane.operator.screens import framed, screen
from jobs.services.books import reconcile_ask
from tenants.billing.models import ReconciliationDifference, ReconciliationRun
from tenants.models import User

RUNS_SHOWN, DIFFERENCES_SHOWN = 15, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One check of a run."""

    name: str
    compared: int
    differences: int
    seconds: float


def _run(by: User, subject: None, data: dict[str, Any]) -> str:
    reconcile_ask(by=by)
    return "A worker compares the books now; the run is listed here when it is over."


ACTS = acts_by_name(
    Act(
        name="run",
        title="Compare the books now",
        permission="billing.add_reconciliationrun",
        form=ActForm,
        do=_run,
        button="Run it now",
    )
)


@screen("billing.view_reconciliationrun")
def reconciliation_page(request: HttpRequest) -> HttpResponse:
    sent = sent_act(request, ACTS, None)
    if sent is not None and is_done(request, sent):
        return HttpResponseRedirect(request.path)
    runs = list(ReconciliationRun.objects.order_by("-started_at")[:RUNS_SHOWN])
    unseen = ReconciliationDifference.objects.filter(seen_at=None).select_related("tenant", "run").order_by("-pk")
    return framed(
        request,
        "reconciliation.html",
        "Reconciliation",
        runs=runs,
        newest=next((run for run in runs if run.finished_at is not None), None),
        checks=check_lines(runs),
        unseen=list(unseen[:DIFFERENCES_SHOWN]),
        unseen_count=unseen.count(),
        offers=offers(request, ACTS, None, sent),
        sent=sent.act.name if sent else "",
    )


def check_lines(runs: list[ReconciliationRun]) -> list[CheckLine]:
    """What the newest finished run compared, in the order of the money's way."""
    newest = next((run for run in runs if run.finished_at is not None), None)
    if newest is None:
        return []
    return [CheckLine(name=name.replace("_", " "), **figures) for name, figures in newest.figures.items()]
