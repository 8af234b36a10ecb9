"""What may be done to datasets on their page: delete one or a version of it, say how long versions are kept."""

from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from frontend.views.datasets.one import dataset_context
from frontend.views.datasets.rows import jobs_by_id
from frontend.views.datasets.versions import newest_version
from frontend.views.page import page
from tenants.datasets.models import Dataset, DatasetVersion
from tenants.datasets.removal import dataset_delete, version_delete
from tenants.datasets.selectors import dataset_get, version_by_number
from tenants.datasets.services import dataset_change
from tenants.errors import ApplicationError, invalid
from tenants.permissions import Permission
from tenants.requests import PageRequest

KEEP_DAYS_MAX = 36_500
_DIGITS_MAX = 9  # more are no number of days, and take long to read


@require_POST
@page(Permission.DATASETS_WRITE)
def dataset_remove(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Delete it with all its versions, as the page showed it."""
    dataset = dataset_get(request.tenant, dataset_id)
    check = partial(_require_seen, request.POST.get("seen", ""))
    try:
        dataset_delete(tenant=request.tenant, actor=request.actor, dataset_id=dataset_id, precondition=check)
    except ApplicationError as error:
        return _refused(request, dataset, None, error)
    messages.success(request, f"{dataset.name} is deleted.")
    return redirect("frontend:datasets")


@require_POST
@page(Permission.DATASETS_WRITE)
def version_remove(request: PageRequest, dataset_id: UUID, number: int) -> HttpResponse:
    """Delete one version."""
    version = version_by_number(request.tenant, dataset_id, number)
    try:
        version_delete(tenant=request.tenant, actor=request.actor, version_id=version.pk)
    except ApplicationError as error:
        return _refused(request, dataset_get(request.tenant, dataset_id), version, error)
    messages.success(request, f"Version {number} is deleted.")
    return redirect("frontend:dataset", dataset_id)


@require_POST
@page(Permission.DATASETS_WRITE)
def dataset_keep(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Keep unused versions for so many days; an empty field: for ever."""
    dataset = dataset_get(request.tenant, dataset_id)
    try:
        dataset_change(
            tenant=request.tenant,
            actor=request.actor,
            dataset_id=dataset_id,
            changes={"keep_days": _days(request.POST.get("keep_days", ""))},
            precondition=partial(_require_seen, request.POST.get("seen", "")),
        )
    except ApplicationError as error:
        return _refused(request, dataset, None, error, typed=request.POST.get("keep_days", "")[:40])
    return redirect("frontend:dataset", dataset_id)


def _days(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and 1 <= int(text) <= KEEP_DAYS_MAX:
        return int(text)
    detail = f"{text[:40]!r} is no number of days; allowed: 1 to {KEEP_DAYS_MAX}, or nothing to keep it for ever."
    raise invalid("/keep_days", "invalid", detail)


def _require_seen(seen: str, version: int) -> None:
    """Raises ApplicationError 412 if the row is not the one that the page showed."""
    if seen != str(version):
        detail = "It was changed since this page was opened. Look at it as it is now, then try again."
        raise ApplicationError(code="precondition_failed", status=412, detail=detail)


def _refused(
    request: PageRequest,
    dataset: Dataset,
    version: DatasetVersion | None,
    error: ApplicationError,
    *,
    typed: str | None = None,
) -> HttpResponse:
    """The page again, with the reason, the jobs that keep it if there are some, and the number ``typed``."""
    if error.status == 404:
        raise error
    version = version or newest_version(request, dataset)
    named: Any = error.extra.get("jobs", [])
    words = " ".join(one.detail for one in error.errors) or error.detail
    refusal = {"detail": words, "jobs": list(jobs_by_id(request.tenant, [UUID(pk) for pk in named]).values())}
    context = dataset_context(request, dataset, version) | {"refusal": refusal, "typed": typed}
    return render(request, "console/datasets/one.html", context, status=error.status)
