"""One dataset: a version of it, what validation found, where it comes from, who used it."""

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from frontend.spreads import groups_of
from frontend.views.datasets.facts import findings_of, schema_lines
from frontend.views.datasets.rows import jobs_by_id, jobs_per_dataset
from frontend.views.datasets.versions import version_asked_for
from frontend.views.page import answer, frame, page
from jobs.selectors.jobs import job_list
from tenants.datasets.lineage import lineage_of
from tenants.datasets.models import Dataset, DatasetVersion, VersionState
from tenants.datasets.selectors import dataset_get
from tenants.permissions import Permission
from tenants.requests import PageRequest

JOBS_SHOWN = 8


@require_safe
@page(Permission.DATASETS_READ)
def dataset_page(request: PageRequest, dataset_id: Any) -> HttpResponse:
    """``?version=`` names one by its number, else the newest is shown; ``episode`` and ``frame`` are the script's."""
    dataset = dataset_get(request.tenant, dataset_id)
    version = version_asked_for(request, dataset)
    context = dataset_context(request, dataset, version)
    return answer(request, "console/datasets/one.html", "console/datasets/parts/whole.html", context)


def dataset_context(request: PageRequest, dataset: Dataset, version: DatasetVersion | None) -> dict[str, Any]:
    """Everything the page of a dataset shows; acts that are refused show it again."""
    context = frame(request, "datasets") | {
        "dataset": dataset,
        # where links lead: a refused act shows this page at another address
        "here": reverse("frontend:dataset", args=[dataset.pk]),
        "versions": list(dataset.versions.all()),
        "version": version,
        "may_write": request.actor.may(Permission.DATASETS_WRITE),
        "may_train": request.actor.may(Permission.JOBS_WRITE),
        "keepers": list(job_list(request.tenant).filter(dataset_version__dataset=dataset)[:JOBS_SHOWN]),
        "keepers_total": jobs_per_dataset(request.tenant, [dataset.pk]).get(dataset.pk, 0),
    }
    return context | (_version_context(request, version) if version else {})


def _version_context(request: PageRequest, version: DatasetVersion) -> dict[str, Any]:
    jobs = job_list(request.tenant).filter(dataset_version=version)
    family = lineage_of(request.tenant, version)
    recorders = jobs_by_id(request.tenant, [version.recorded_from])
    facts = version.summary if version.state == VersionState.READY else None
    return {
        "facts": facts,
        "schema": schema_lines(version) if facts else [],
        "findings": findings_of(version),
        "groups": groups_of(facts, None) if facts else [],
        "family": family,
        "keep_until": _keep_until(version),
        "recorded_from": recorders.get(version.recorded_from) if version.recorded_from else None,
        "jobs": list(jobs[:JOBS_SHOWN]),
        "jobs_total": jobs.count(),
        "settling": version.state in {VersionState.RECEIVED, VersionState.VALIDATING},
        "browser": _browser_data(version) if facts else None,
    }


def _keep_until(version: DatasetVersion) -> datetime | None:
    """When retention would take it, if no job used it."""
    days = version.dataset.keep_days
    return version.sealed_at + timedelta(days=days) if days and version.sealed_at else None


def _browser_data(version: DatasetVersion) -> dict[str, Any]:
    """What the episode browser starts from; everything else it asks of the API."""
    facts = version.summary or {}
    return {
        "api": f"/api/v1/dataset-versions/{version.pk}",
        "page": f"{reverse('frontend:dataset', args=[version.dataset_id])}?version={version.number}",
        "episodes": facts["episodes"],
        "hz": facts["schema"]["control_hz"],
        "cameras": facts["schema"]["cameras"],
    }
