"""Jobs and what they published, of one tenant."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Prefetch, QuerySet, Sum

from jobs.models import Artifact, Job, JobTag, PolicyVersion
from jobs.selectors.filters import JobFilter
from tenants.access import access_row
from tenants.errors import ApplicationError, invalid
from tenants.identity import memberships_of
from tenants.models import Tenant, User
from tenants.permissions import Permission, permissions_of
from tenants.quotas.storage import Stored
from tenants.scope import project_in_scope, tenant_scope

NOT_ARCHIVED = JobFilter()
RECENT_JOBS = 500  # the newest, of which the console offers tags and models to filter by


def job_list(tenant: Tenant, wanted: JobFilter = NOT_ARCHIVED) -> QuerySet[Job]:
    """Newest first unless ``wanted`` says otherwise; archived jobs only if it asks for them.

    For a key bound to a project, jobs of other projects do not exist.
    """
    with tenant_scope(tenant):
        return _with_tags(wanted.apply(_jobs()))


def _with_tags(jobs: QuerySet[Job]) -> QuerySet[Job]:
    return jobs.prefetch_related(Prefetch("tags", JobTag.objects.order_by("name")))


def _jobs() -> QuerySet[Job]:
    """Those of the open tenant, and of its one project that may be seen, with what a line about them needs."""
    jobs = Job.objects.select_related("project", "dataset_version__dataset", "policy__job", "created_by")
    jobs = jobs.defer("policy__manifest", "policy__job__spec")
    project_id = project_in_scope()
    return jobs if project_id is None else jobs.filter(project_id=project_id)


def jobs_of(tenant: Tenant, job_ids: Collection[UUID]) -> QuerySet[Job]:
    """Those of these ids that the tenant has, archived ones too, in no order."""
    with tenant_scope(tenant):
        return _with_tags(_jobs().filter(pk__in=job_ids))


def recent_tags(tenant: Tenant) -> list[str]:
    """The tags of the newest jobs, each as often as it is on one: bounded, however many jobs there are."""
    newest = job_list(tenant).values("pk")[:RECENT_JOBS]
    with tenant_scope(tenant):
        return list(JobTag.objects.filter(job__in=newest).order_by().values_list("name", flat=True))


def recent_models(tenant: Tenant) -> set[tuple[str, str]]:
    """(base model, action head) of the newest jobs."""
    return set(job_list(tenant).values_list("base_model", "head")[:RECENT_JOBS])


def job_get(tenant: Tenant, job_id: UUID) -> Job:
    """One job, archived or not. Raises the same 404 for a missing and for a foreign one."""
    with tenant_scope(tenant):
        return access_row(_jobs(), "job", pk=job_id)


def cloned_job(tenant: Tenant, job_id: str | None) -> Job | None:
    """The job that a specification says it changes. Raises ApplicationError 422: it must be one of the tenant's."""
    if job_id is None:
        return None
    try:
        return job_get(tenant, UUID(job_id))
    except (ValueError, ApplicationError) as error:
        detail = f"There is no job {job_id!r}. Allowed: ids of your own jobs, or null."
        raise invalid("/cloned_from", "unknown_job", detail) from error


def owner_id(tenant: Tenant, email: str) -> int:
    """The id of the person of this address who submitted jobs of the tenant; 0, which nobody has, for others."""
    with tenant_scope(tenant):
        found = Job.objects.filter(created_by__email__iexact=email).values_list("created_by_id", flat=True)
        return next(iter(found[:1]), 0)


def job_for_user(user: User, job_id: UUID) -> Job | None:
    """A job of any tenant in which the user may read jobs; None for missing and foreign alike."""
    tenants = [row.tenant for row in memberships_of(user) if Permission.JOBS_READ in permissions_of(row.role)]
    if not tenants:
        return None
    with tenant_scope(tenants):  # type: ignore[arg-type]  # the guard takes several tenants as well as one
        return Job.objects.select_related("tenant").filter(pk=job_id).first()


def environments_of(job: Job) -> list[str]:
    """Ids of the simulated tasks a job plays; none for a job that learns from demonstrations."""
    spec = job.spec
    tasks = spec.get("environments") or ([spec["environment"]] if "environment" in spec else [])
    return [task["id"] for task in tasks]


def _artifacts() -> QuerySet[Artifact]:
    """Those of the open tenant, and of its one project that may be seen."""
    project_id = project_in_scope()
    return Artifact.objects.filter(job__project_id=project_id) if project_id is not None else Artifact.objects.all()


def artifact_list(tenant: Tenant, job_id: UUID | None = None, *, kind: str = "") -> QuerySet[Artifact]:
    """Published files, newest first: of one job (404 unless it is the tenant's) or of all."""
    with tenant_scope(tenant):
        artifacts = _artifacts().order_by("-created_at", "-pk")
        if job_id is not None:
            artifacts = artifacts.filter(job_id=job_get(tenant, job_id).pk)
        return artifacts.filter(kind=kind) if kind else artifacts


def artifact_get(tenant: Tenant, artifact_id: UUID) -> Artifact:
    """One artifact. Raises the same 404 for a missing and for a foreign one."""
    with tenant_scope(tenant):
        return access_row(_artifacts().select_related("job"), "artifact", pk=artifact_id)


def artifact_bytes(tenant: Tenant) -> Stored:
    """What the tenant's published files take: those that are not deleted."""
    with tenant_scope(tenant):
        total = Artifact.objects.filter(deleted_at=None).aggregate(total=Sum("size_bytes"))["total"]
    return Stored(used_bytes=total or 0)


def policy_version_list(tenant: Tenant, job_id: UUID) -> QuerySet[PolicyVersion]:
    with tenant_scope(tenant):
        return PolicyVersion.objects.filter(job_id=job_get(tenant, job_id).pk).order_by("-created_at", "-pk")
