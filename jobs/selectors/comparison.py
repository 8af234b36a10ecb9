"""Reads for several jobs at once: each in a number of queries that does not depend on how many there are."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from jobs.models import Artifact, ArtifactKind, Job
from jobs.selectors.jobs import jobs_of
from jobs.selectors.points import POINT_COLUMNS, point_rows
from tenants.access import not_found
from tenants.models import Tenant
from tenants.scope import tenant_scope

COMPARISON_COLUMNS = ("number", "job_id", "name", *POINT_COLUMNS)


def jobs_get(tenant: Tenant, job_ids: Sequence[UUID]) -> list[Job]:
    """In the order of ``job_ids``, archived ones too. Raises ApplicationError 404 for one the tenant has not."""
    found = {job.pk: job for job in jobs_of(tenant, job_ids)}
    if any(job_id not in found for job_id in job_ids):
        raise not_found("job")
    return [found[job_id] for job_id in job_ids]


def newest_reports(tenant: Tenant, job_ids: Sequence[UUID]) -> dict[UUID, Artifact]:
    """By job: its own newest evaluation report, or else that of the newest evaluation of a policy of its."""
    with tenant_scope(tenant):
        reports = Artifact.objects.filter(kind=ArtifactKind.EVALUATION)
        oldest_first = reports.order_by("created_at", "pk")
        of_policies = oldest_first.filter(job__policy__job_id__in=job_ids)
        chosen = dict(of_policies.values_list("job__policy__job_id", "pk"))  # the last of each stays
        chosen |= dict(oldest_first.filter(job_id__in=job_ids).values_list("job_id", "pk"))
        read = reports.select_related("job").in_bulk(chosen.values())
        return {job_id: read[report_id] for job_id, report_id in chosen.items()}


def comparison_rows(jobs: Sequence[Job]) -> Iterator[tuple[Any, ...]]:
    """Every point of every job: rows of COMPARISON_COLUMNS, job by job."""
    for job in jobs:
        for row in point_rows(job.tenant, job.pk):
            yield (job.number, str(job.pk), job.name, *row)
