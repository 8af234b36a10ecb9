"""Where a job's policy comes from, what it made, and what was started from that."""

from dataclasses import dataclass

from frontend.measured import Result, latest_results
from frontend.successes import Success, latest_successes
from jobs.models import Artifact, DatasetImport, ImportState, Job
from jobs.selectors.imports import import_of_job
from jobs.selectors.jobs import artifact_list
from jobs.selectors.policies import ancestors_of, heirs_of_policies
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A policy on the way to this one, and how often it succeeds as far as was evaluated."""

    policy: Artifact
    result: Result | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heir:
    """A job that starts from it; ``success`` is the newest that it told."""

    job: Job
    success: Success | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The way from the frozen base to here, the oldest first, and from here on."""

    base_model: str
    dataset: DatasetVersion | None  # of the oldest policy on the way, or of this job
    ancestors: tuple[Ancestor, ...]
    heirs: tuple[Heir, ...]
    heirs_more: int


def family_of(tenant: Tenant, job: Job, policies: list[Artifact]) -> Family:
    """Of a job and the policies it made. A fixed number of queries but for the way back, one each of at most 6."""
    line = ancestors_of(tenant, job.policy)
    results = latest_results(tenant, [policy.pk for policy in line])
    heirs = heirs_of_policies(tenant, [policy.pk for policy in policies])
    shown = list(heirs[: HEIRS_SHOWN + 1])
    known = latest_successes(tenant, shown[:HEIRS_SHOWN])
    return Family(
        base_model=job.base_model,
        dataset=line[0].job.dataset_version if line else job.dataset_version,
        ancestors=tuple(Ancestor(policy=policy, result=results.get(policy.pk)) for policy in line),
        heirs=tuple(Heir(job=heir, success=known.get(heir.pk)) for heir in shown[:HEIRS_SHOWN]),
        heirs_more=heirs.count() - HEIRS_SHOWN if len(shown) > HEIRS_SHOWN else 0,
    )
