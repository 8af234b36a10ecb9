"""Which version of a dataset a page is about."""

from django.http import Http404

from tenants.datasets.models import Dataset, DatasetVersion
from tenants.datasets.selectors import version_by_number
from tenants.requests import PageRequest


def version_asked_for(request: PageRequest, dataset: Dataset) -> DatasetVersion | None:
    """The one that ``?version=`` names, else the newest; None: none is left. Raises Http404."""
    wanted = request.GET.get("version", "")
    if not wanted:
        return newest_version(request, dataset)
    if not (wanted.isascii() and wanted.isdigit() and len(wanted) < 10):
        raise Http404(f"{wanted!r} is no number of a version.")
    return version_by_number(request.tenant, dataset.pk, int(wanted))


def newest_version(request: PageRequest, dataset: Dataset) -> DatasetVersion | None:
    newest = next(iter(dataset.versions.all()), None)
    return newest and version_by_number(request.tenant, dataset.pk, newest.number)
