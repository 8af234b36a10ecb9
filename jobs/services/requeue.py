"""An operator has an ended job run again: the same job, a new attempt, what it made before stays."""

from decimal import Decimal

from django.db import transaction
from pydantic import TypeAdapter, ValidationError

from gpu_runtime.protocol.job_specs import JobSpec
from jobs.models import Job
from jobs.services.admission.entry import tenant_locked
from jobs.services.admission.spending import spending_refusals
from jobs.services.admission.start import Start
from jobs.services.attempts import attempt_close
from jobs.services.estimates.estimate import hold_amount
from jobs.services.outbox import DISPATCH_JOB, outbox_add
from jobs.services.transition import job_reopen
from jobs.states import AttemptState
from tenants.audit.services import audit
from tenants.billing.ledger.holds import hold_place
from tenants.billing.usage.selectors import spent_of_job
from tenants.errors import ApplicationError
from tenants.models import Tenant, User
from tenants.quotas.limits import limits_read
from tenants.scope import tenant_scope

REASON = "requeued_by_operator"
_SPEC: TypeAdapter[JobSpec] = TypeAdapter(JobSpec)


@transaction.atomic
def job_requeue(*, by: User, job: Job, reason: str = "") -> Job:
    """Put a failed or cancelled job back into its tenant's line; its attempts so far are forgiven.

    Raises ApplicationError: 409 for a job that runs or succeeded, whose policy was deleted, or whose
    specification is of an earlier release; 402 where its tenant's money does not suffice.
    """
    tenant = tenant_locked(job.tenant)
    with tenant_scope(tenant):
        row = Job.objects.select_related("project", "api_key", "policy", "dataset_version").get(pk=job.pk)
        spec = _still_possible(row)
        before = {"state": row.state, "reason": row.reason, "attempt": row.attempt}
        attempt_close(row, AttemptState.LOST, reason=REASON)  # if it has not ended: nothing of it counts any more
        moved = job_reopen(row, reason=REASON, message="The platform runs this job again.")
        if moved is None:
            detail = f"The job is {row.state}. Allowed: one that failed or was cancelled."
            raise ApplicationError(code="job_not_ended", status=409, detail=detail)
        _reserve(tenant, row, spec)
        outbox_add(topic=DISPATCH_JOB, key=str(row.pk))
        audit(
            by=by, verb="job.requeued", target=row, tenant=tenant, name=row.name, before=before,
            after={"state": row.state, "attempt": row.attempt}, reason=reason,
        )  # fmt: skip
    return row


def _still_possible(job: Job) -> JobSpec:
    """Its policy must still have bytes; a dataset version is never deleted while any job, this one too, used it."""
    if job.policy is not None and job.policy.deleted_at is not None:
        detail = f"The policy {job.policy.name!r} that the job starts from was deleted."
        raise ApplicationError(code="policy_deleted", status=409, detail=detail)
    try:
        return _SPEC.validate_python(job.spec)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        detail = f"The job was submitted to an earlier release and does not fit this one at {where!r}."
        raise ApplicationError(code="specification_outdated", status=409, detail=detail) from None


def _reserve(tenant: Tenant, job: Job, spec: JobSpec) -> None:
    """As at admission. Of a budget of the job's own what its attempts have spent is gone."""
    start = Start(base_model=job.base_model, head=job.head, dataset_version=job.dataset_version, policy=job.policy)
    amount = hold_amount(tenant, spec, start)
    if spec.budget.max_cost is not None:
        amount = max(amount - spent_of_job(tenant, job.pk), Decimal(0))
        if amount == 0:
            detail = f"The job has used up its budget.max_cost of {spec.budget.max_cost}."
            raise ApplicationError(code="budget_reached", status=409, detail=detail)
    refusals = spending_refusals(
        tenant=tenant, project=job.project, key=job.api_key, limits=limits_read(tenant), amount=amount
    )
    for refusal in refusals:
        raise refusal
    hold_place(tenant=tenant, job_id=job.pk, project_id=job.project_id, key_id=job.api_key_id, amount=amount)
