"""What was made of a job's own policy and episodes."""

from dataclasses import dataclass

from jobs.models import Artifact, DatasetImport, ImportState, Job
from jobs.selectors.imports import import_of_job
from jobs.selectors.jobs import artifact_list, job_list
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.selectors import versions_recorded_from
from tenants.models import Tenant

HEIRS_SHOWN = 10
_UNDER_WAY = {ImportState.WAITING, ImportState.IMPORTING, VersionState.RECEIVED, VersionState.VALIDATING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a job published, films apart, and what became of its recording. ``importing``: until it is a dataset."""

    artifacts: list[Artifact]
    datasets: list[DatasetVersion]
    importing: DatasetImport | None

    @property
    def under_way(self) -> bool:
        """Something will change without the job doing anything."""
        states = {version.state for version in self.datasets}
        return not _UNDER_WAY.isdisjoint(states | ({self.importing.state} if self.importing else set()))

    @property
    def given_up(self) -> bool:
        return self.importing is not None and self.importing.state == ImportState.FAILED


def made_by(tenant: Tenant, job: Job) -> Made:
    """Newest first. A recording that was taken in is told by its dataset versions alone."""
    row = import_of_job(tenant, job.pk)
    return Made(
        artifacts=list(artifact_list(tenant, job.pk).exclude(kind="video")),
        datasets=list(versions_recorded_from(tenant, job.pk)),
        importing=None if row is None or row.state == ImportState.IMPORTED else row,
    )


def heirs_of(tenant: Tenant, job: Job) -> list[Job]:
    """The newest jobs that start from an adapter of this one."""
    return list(job_list(tenant).filter(policy__job_id=job.pk)[:HEIRS_SHOWN])
