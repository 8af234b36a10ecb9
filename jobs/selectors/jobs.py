"""Jobs and what they published, of one tenant."""

from uuid import UUID

from django.db.models import QuerySet, Sum

from jobs.models import Artifact, Job, PolicyVersion
from tenants.access import access_row
from tenants.errors import ApplicationError, invalid
from tenants.identity import memberships_of
from tenants.models import Tenant, User
from tenants.permissions import Permission, permissions_of
from tenants.quotas.storage import Stored
from tenants.scope import project_in_scope, tenant_scope


def job_list(
    tenant: Tenant,
    *,
    state: str = "",
    kind: str = "",
    query: str = "",
    project: str = "",
    priority: int | None = None,
) -> QuerySet[Job]:
    """Newest first. ``query`` is searched in the name, without regard to case; ``project`` is a slug.

    For a key bound to a project, jobs of other projects do not exist.
    """
    with tenant_scope(tenant):
        jobs = Job.objects.select_related("project", "dataset_version__dataset", "policy__job", "created_by")
        jobs = jobs.defer("policy__manifest", "policy__job__spec").order_by("-created_at", "-pk")
    if (project_id := project_in_scope()) is not None:
        jobs = jobs.filter(project_id=project_id)
    if state:
        jobs = jobs.filter(state=state)
    if kind:
        jobs = jobs.filter(kind=kind)
    if project:
        jobs = jobs.filter(project__slug=project)
    if priority is not None:
        jobs = jobs.filter(priority=priority)
    return jobs.filter(name__icontains=query) if query else jobs


def job_get(tenant: Tenant, job_id: UUID) -> Job:
    """One job. Raises the same 404 for a missing and for a foreign one."""
    return access_row(job_list(tenant), "job", pk=job_id)


def cloned_job(tenant: Tenant, job_id: str | None) -> Job | None:
    """The job that a specification says it changes. Raises ApplicationError 422: it must be one of the tenant's."""
    if job_id is None:
        return None
    try:
        return job_get(tenant, UUID(job_id))
    except (ValueError, ApplicationError) as error:
        detail = f"There is no job {job_id!r}. Allowed: ids of your own jobs, or null."
        raise invalid("/cloned_from", "unknown_job", detail) from error


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
