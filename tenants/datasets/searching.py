"""The list of a tenant's datasets as people look through it: searched, filtered and sorted by the newest version."""

from collections.abc import Iterable
from enum import StrEnum
from uuid import UUID

from django.db.models import Count, F, OuterRef, QuerySet, Subquery

from tenants.datasets.models import Dataset, DatasetVersion
from tenants.models import Tenant
from tenants.scope import tenant_scope


class DatasetSort(StrEnum):
    """Orders of the list; a minus means greatest first. Ties go by name."""

    NEWEST = "-changed"  # when the newest version arrived
    OLDEST = "changed"
    NAME = "name"
    NAME_BACK = "-name"
    SMALLEST = "size"
    LARGEST = "-size"
    SHORTEST = "frames"
    LONGEST = "-frames"
    FEWEST = "episodes"
    MOST = "-episodes"


_COLUMNS = {
    "changed": "newest_at",
    "name": "name",
    "size": "newest_bytes",
    "frames": "newest_frames",
    "episodes": "newest_episodes",
}


def dataset_search(
    tenant: Tenant, *, query: str = "", state: str = "", sort: DatasetSort = DatasetSort.NEWEST
) -> QuerySet[Dataset]:
    """Datasets with ``newest_id``: of the newest version, or None where none is left.

    ``query`` is searched in the name, without regard to case; ``state`` is the newest version's.
    """
    with tenant_scope(tenant):
        newest = DatasetVersion.objects.filter(dataset=OuterRef("pk")).order_by("-number")
        rows = Dataset.objects.annotate(newest_id=Subquery(newest.values("pk")[:1])).alias(
            newest_at=Subquery(newest.values("created_at")[:1]),
            newest_state=Subquery(newest.values("state")[:1]),
            newest_bytes=Subquery(newest.values("size_bytes")[:1]),
            newest_frames=Subquery(newest.values("summary__frames")[:1]),
            newest_episodes=Subquery(newest.values("summary__episodes")[:1]),
        )
    if query:
        rows = rows.filter(name__icontains=query)
    if state:
        rows = rows.filter(newest_state=state)
    column = F(_COLUMNS[sort.removeprefix("-")])
    order = column.desc(nulls_last=True) if sort.startswith("-") else column.asc(nulls_last=True)
    return rows.order_by(order, "name")


def versions_by_id(tenant: Tenant, version_ids: Iterable[UUID | None]) -> dict[UUID, DatasetVersion]:
    """These versions, without their reports."""
    with tenant_scope(tenant):
        rows = DatasetVersion.objects.defer("report").filter(pk__in=[pk for pk in version_ids if pk])
        return {row.pk: row for row in rows}


def version_counts(tenant: Tenant, dataset_ids: Iterable[UUID]) -> dict[UUID, int]:
    """How many versions each of these datasets has."""
    with tenant_scope(tenant):
        rows = DatasetVersion.objects.filter(dataset__in=list(dataset_ids)).order_by()
        return dict(rows.values_list("dataset").annotate(total=Count("pk")))
