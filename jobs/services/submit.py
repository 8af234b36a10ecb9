"""A specification becomes a queued job and a hand-over to the dispatcher, in one transaction."""

from typing import Any

from django.db import transaction
from django.utils import timezone

from gpu_runtime.protocol.job_specs import JobSpec
from jobs.demand import seats_asked
from jobs.models import Job
from jobs.services.admission import admit
from jobs.services.outbox import DISPATCH_JOB, outbox_add
from jobs.services.transition import job_told
from jobs.states import JobState
from tenants.bodies import parse_body
from tenants.identity import Actor
from tenants.models import DEFAULT_PROJECT, Project, Tenant
from tenants.scope import tenant_scope


@transaction.atomic
def job_submit(*, tenant: Tenant, actor: Actor | None, spec: Any) -> Job:
    """Check a JSON specification and queue the job. Durable once the transaction commits, broker or no broker.

    Raises ApplicationError 422 naming each refused field by JSON pointer, its value and what is allowed.
    """
    wanted: JobSpec = parse_body(JobSpec, spec)
    with tenant_scope(tenant):
        start = admit(tenant, wanted)
        job = Job.objects.create(
            tenant=tenant,
            project=Project.objects.get(slug=wanted.project or DEFAULT_PROJECT),
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
        job_told(job, occurred_at=timezone.now())
        outbox_add(topic=DISPATCH_JOB, key=str(job.pk))
        return job
