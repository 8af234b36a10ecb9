"""A specification becomes a queued job and a hand-over to the dispatcher, in one transaction."""

from typing import Any

from django.db import transaction
from django.utils import timezone

from gpu_runtime.protocol.job_specs import JobSpec
from jobs.demand import seats_asked
from jobs.models import Job, JobTag
from jobs.selectors.jobs import cloned_job
from jobs.services.admission.entry import entry_refusals, require_possible, tenant_locked
from jobs.services.admission.specification import admit
from jobs.services.admission.spending import spending_refusals
from jobs.services.admission.start import Start
from jobs.services.estimates.estimate import hold_amount
from jobs.services.outbox import DISPATCH_JOB, outbox_add
from jobs.services.transition import job_told
from jobs.states import JobState
from tenants.audit.services import audit
from tenants.billing.ledger.holds import hold_place
from tenants.bodies import parse_body
from tenants.identity import Actor
from tenants.models import Project, Tenant
from tenants.quotas.limits import limits_read
from tenants.scope import tenant_scope
from tenants.selectors import project_for


@transaction.atomic
def job_submit(*, tenant: Tenant, actor: Actor | None, spec: Any) -> Job:
    """Check a JSON specification and queue the job. Durable once the transaction commits, broker or no broker.

    Raises ApplicationError: 422 naming each refused field by JSON pointer, its value and what is allowed; 403 if the
    tenant is paused; 409 `quota_exceeded` and 402 `spend_limit_reached` with the limit and what is used of it, 402
    `insufficient_credit`.
    """
    wanted: JobSpec = parse_body(JobSpec, spec)
    with tenant_scope(tenant):
        tenant = tenant_locked(tenant)
        project = project_for(actor or tenant, wanted.project)
        key = actor.key if actor else None
        start, limits = admit(tenant, wanted), limits_read(tenant)
        require_possible(wanted, project, limits)
        for refusal in entry_refusals(tenant, project, limits):
            raise refusal
        parent = cloned_job(tenant, wanted.cloned_from)
        amount = hold_amount(tenant, wanted, start)
        for refusal in spending_refusals(tenant=tenant, project=project, key=key, limits=limits, amount=amount):
            raise refusal
        job = _insert(wanted, start, tenant=tenant, project=project, actor=actor, parent=parent)
        hold_place(tenant=tenant, job_id=job.pk, project_id=project.pk, key_id=key.pk if key else None, amount=amount)
        after = {"kind": job.kind, "project": project.slug, "priority": job.priority}
        audit(by=actor, verb="job.submitted", target=job, tenant=tenant, name=job.name, after=after)
        job_told(job, occurred_at=timezone.now())
        outbox_add(topic=DISPATCH_JOB, key=str(job.pk))
        return job


def _insert(
    wanted: JobSpec, start: Start, *, tenant: Tenant, project: Project, actor: Actor | None, parent: Job | None
) -> Job:
    """The tenant's row is locked, so no number is given twice."""
    tenant.jobs_numbered += 1
    tenant.save(update_fields=["jobs_numbered"])
    job = Job.objects.create(
        tenant=tenant,
        number=tenant.jobs_numbered,
        cloned_from=parent,
        project=project,
        api_key=actor.key if actor else None,
        priority=wanted.priority,
        env_seats=seats_asked(wanted),
        kind=wanted.kind,
        name=wanted.name,
        spec=wanted.model_dump(mode="json"),
        base_model=start.base_model,
        head=start.head,
        dataset_version=start.dataset_version,
        policy=start.policy,
        state=JobState.QUEUED,
        total_steps=wanted.total_steps,
        created_by=actor.user if actor else None,
    )
    JobTag.objects.bulk_create(JobTag(tenant=tenant, job=job, name=tag) for tag in wanted.tags)
    return job
