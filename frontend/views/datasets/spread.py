"""The part of a dataset's page that shows how its values are spread; read aside, since that takes a moment."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from frontend.spreads import groups_of, lengths_of
from frontend.views.datasets.versions import version_asked_for
from frontend.views.page import page
from tenants.datasets import preview
from tenants.datasets.models import DatasetVersion
from tenants.datasets.selectors import dataset_get
from tenants.errors import ApplicationError
from tenants.permissions import Permission
from tenants.requests import PageRequest


@require_safe
@page(Permission.DATASETS_READ)
def dataset_spread(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Of ``?version=``, else of the newest; where it cannot be read, the numbers alone with the reason."""
    version = version_asked_for(request, dataset_get(request.tenant, dataset_id))
    return render(request, "console/datasets/parts/spread.html", _context(version) if version else {})


def _context(version: DatasetVersion) -> dict[str, Any]:
    try:
        spread = preview.distribution(version)
    except ApplicationError as error:
        groups = groups_of(version.summary, None) if version.summary else []
        return {"groups": groups, "missing": error.detail}
    return {"groups": groups_of(version.summary or {}, spread), "lengths": lengths_of(spread)}
