"""Rows of the list of datasets, in a constant number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count

from jobs.models import Job
from jobs.selectors.jobs import job_list
from tenants.datasets.models import Dataset, DatasetVersion
from tenants.datasets.searching import version_counts, versions_by_id
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRow:
    """A dataset with its newest version; ``facts`` is None until that is ready."""

    dataset: Dataset
    version: DatasetVersion | None
    versions: int
    facts: dict[str, Any] | None
    jobs: int  # that learn, or learned, from any version
    recorded_from: Job | None


def dataset_rows(tenant: Tenant, datasets: Sequence[Any]) -> list[DatasetRow]:
    """``datasets`` come from `dataset_search`."""
    ids = [dataset.pk for dataset in datasets]
    newest = versions_by_id(tenant, [dataset.newest_id for dataset in datasets])
    counts, used = version_counts(tenant, ids), jobs_per_dataset(tenant, ids)
    recorders = jobs_by_id(tenant, [row.recorded_from for row in newest.values()])
    return [
        DatasetRow(
            dataset=dataset,
            version=(version := newest.get(dataset.newest_id)),
            versions=counts.get(dataset.pk, 0),
            facts=version.summary if version else None,
            jobs=used.get(dataset.pk, 0),
            recorded_from=recorders.get(version.recorded_from) if version and version.recorded_from else None,
        )
        for dataset in datasets
    ]


def jobs_per_dataset(tenant: Tenant, dataset_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many jobs learn, or learned, from each dataset."""
    rows = job_list(tenant).select_related(None).filter(dataset_version__dataset__in=list(dataset_ids)).order_by()
    return dict(rows.values_list("dataset_version__dataset").annotate(total=Count("pk")))


def jobs_by_id(tenant: Tenant, job_ids: Sequence[UUID | None]) -> dict[UUID, Job]:
    """Jobs of the tenant; one that is gone is left out."""
    wanted = [job_id for job_id in job_ids if job_id is not None]
    return {job.pk: job for job in job_list(tenant).filter(pk__in=wanted)} if wanted else {}
