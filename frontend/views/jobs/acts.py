"""What is done to several jobs at once: asked first, with what it means and costs; told afterwards, job by job."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from frontend.views.jobs.rows import Row, rows_of
from frontend.views.jobs.saved import tag_counts
from frontend.views.page import answer, frame, page
from jobs.services.bulk import JOBS_MAX, BulkAction, BulkResult, jobs_act
from jobs.states import LIVE, JobState
from tenants.billing.usage.selectors import Cost
from tenants.errors import ApplicationError, FieldError, invalid
from tenants.permissions import Permission
from tenants.requests import PageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Of an action: the question, the verb of its button, the safe one, what was done."""

    ask: str
    act: str
    keep: str
    done: str


WORDS: dict[BulkAction, Words] = {
    BulkAction.CANCEL: Words(ask="Cancel", act="Cancel", keep="Keep running", done="cancelled or told to stop"),
    BulkAction.ARCHIVE: Words(ask="Archive", act="Archive", keep="Keep in the list", done="archived"),
    BulkAction.UNARCHIVE: Words(ask="Unarchive", act="Unarchive", keep="Leave archived", done="in the list again"),
    BulkAction.TAG: Words(ask="Tag", act="Put the tag on", keep="Leave as is", done="tagged"),
    BulkAction.UNTAG: Words(ask="Take a tag off", act="Take the tag off", keep="Leave as is", done="without the tag"),
}


@require_POST
@page(Permission.JOBS_WRITE)
def jobs_act_page(request: PageRequest) -> HttpResponse:
    """Without ``sure`` it asks; with it, it acts. Either is part of a dialog, without script a page."""
    try:
        action, ids = _wanted(request)
    except ApplicationError as error:
        return _answer(request, {"refused": error.errors[0].detail}, status=422)
    rows = rows_of(request.tenant, ids, timezone.now())
    tag = request.POST.get("tag", "").replace("\0", "").strip()
    context: dict[str, Any] = {"action": action, "words": WORDS[action], "rows": rows, "tag": tag}
    if not request.POST.get("sure"):
        return _answer(request, context | _question(request, action, rows))
    try:
        told = jobs_act(by=request.actor, tenant=request.tenant, job_ids=ids, action=action, tag=tag)
    except ApplicationError as error:
        problem = _problem(error)
        return _answer(request, context | _question(request, action, rows) | {"problem": problem}, status=422)
    return _answer(request, context | _outcome(told))


def _wanted(request: PageRequest) -> tuple[BulkAction, list[UUID]]:
    """Raises ApplicationError 422 for what the page's own buttons never send."""
    given = request.POST.get("action", "")
    if given not in set(BulkAction):
        raise invalid("/action", "unknown", f"{given!r}. Allowed: {', '.join(BulkAction)}.")
    try:
        ids = list(dict.fromkeys(UUID(text) for text in request.POST.getlist("job")))
    except ValueError as error:
        raise invalid("/job", "unknown", "Allowed: ids of your jobs.") from error
    if not 0 < len(ids) <= JOBS_MAX:
        raise invalid("/job", "wrong_number", f"{len(ids)} jobs are selected. Allowed: 1 to {JOBS_MAX}.")
    return BulkAction(given), ids


def _question(request: PageRequest, action: BulkAction, rows: tuple[Row, ...]) -> dict[str, Any]:
    """What the act means for these jobs, as they are now."""
    live = [row for row in rows if row.job.state in LIVE]
    started = [row for row in live if row.job.state != JobState.QUEUED]
    amount = sum((row.cost.amount for row in (started if action == BulkAction.CANCEL else rows)), Decimal(0))
    return {
        "asks": True,
        "live": live,
        "ended": [row for row in rows if row.job.state not in LIVE],
        "started": started,
        "waiting": len(live) - len(started),
        "spent": Cost(amount=amount, currency=request.tenant.currency, lines=()),
        "able": len(live) if action == BulkAction.CANCEL else len(rows) - len(live) * (action == BulkAction.ARCHIVE),
        "tags": sorted(
            tag_counts(request.tenant) if action == BulkAction.TAG else {t for row in rows for t in row.tags}
        ),
    }


def _outcome(told: tuple[BulkResult, ...]) -> dict[str, Any]:
    return {
        "told": told,
        "done": sum(result.done for result in told),
        "not_done": [result for result in told if not result.done],
    }


def _problem(error: ApplicationError) -> FieldError:
    return error.errors[0] if error.errors else FieldError(pointer="/", code=error.code, detail=error.detail)


def _answer(request: PageRequest, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """htmx swaps no answer of an error, so what a dialog shows is always an answer of 200."""
    whole = context if request.htmx else frame(request, "jobs") | context
    return answer(
        request, "console/jobs/act_page.html", "console/jobs/act.html", whole, status=200 if request.htmx else status
    )
