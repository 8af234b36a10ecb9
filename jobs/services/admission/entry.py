"""What must hold before a job enters its tenant's line, money apart. Read it with the tenant's row locked."""

from collections.abc import Iterator

from gpu_runtime.protocol.job_specs import JobSpec
from jobs.demand import seats_asked, seats_pointer
from jobs.selectors.line import queued_counts
from jobs.services.admission.start import refused
from jobs.services.places import PAUSED
from tenants.errors import ApplicationError, FieldError
from tenants.models import Project, Tenant, TenantState
from tenants.quotas.limits import Limits
from tenants.quotas.models import Resource


def tenant_locked(tenant: Tenant) -> Tenant:
    """The tenant as it is now, its row locked until the transaction ends: admissions go one after another."""
    return Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


def entry_refusals(tenant: Tenant, project: Project, limits: Limits) -> Iterator[ApplicationError]:
    """403 of a paused tenant; 409 `quota_exceeded` if tenant or project have all the queued jobs they may."""
    if tenant.state == TenantState.PAUSED:
        why = tenant.paused_reason or "no reason was given"
        detail = f"Your tenant is paused and takes no new jobs: {why}. Ask the operators of the platform."
        yield ApplicationError(code=PAUSED, status=403, detail=detail)
    counts = queued_counts(tenant)
    whole, own = sum(counts.values()), counts.get(project.pk, 0)
    for used, limit, whose in (
        (whole, limits.of_tenant(Resource.QUEUED_JOBS), "your tenant"),
        (own, limits.of_project(project.pk, Resource.QUEUED_JOBS), f"the project {project.slug!r}"),
    ):
        if limit is not None and used >= limit:
            detail = (
                f"{used} jobs of {whose} are queued; the limit queued_jobs is {limit}. "
                "Wait until one of them has started, cancel one, or have the limit raised."
            )
            extra: dict[str, object] = {"resource": str(Resource.QUEUED_JOBS), "limit": limit, "used": used}
            yield ApplicationError(code="quota_exceeded", status=409, detail=detail, extra=extra)


def require_possible(spec: JobSpec, project: Project, limits: Limits) -> None:
    """Raises ApplicationError 422 for a job that asks for more seats than it could get with nothing else running."""
    errors = list(_seat_errors(spec, project, limits))
    if errors:
        raise refused(errors)


def _seat_errors(spec: JobSpec, project: Project, limits: Limits) -> Iterator[FieldError]:
    asked = seats_asked(spec)
    bounds = [limits.of_tenant(Resource.ENV_SEATS), limits.of_project(project.pk, Resource.ENV_SEATS)]
    limit = min((bound for bound in bounds if bound is not None), default=None)
    if limit is not None and asked > limit:
        detail = (
            f"{asked} environments side by side: the limit env_seats is {limit}. "
            f"Allowed: {f'1 to {limit}' if limit else 'none'}; or have the limit raised."
        )
        yield FieldError(pointer=seats_pointer(spec.kind), code="quota_exceeded", detail=detail)
