"""Cancelling: a queued job ends at once; a started one when the runtime confirms. What finished first stands.

A user's cancel keeps nothing and does not wait; where the platform itself stops a job, because a cap is reached, the
job keeps what it made. Of several wishes the first one stands, here as in the runtime.
"""

import logging
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from gpu_runtime.protocol.messages import StopJob
from jobs.cap_rules import CapReason
from jobs.models import Job
from jobs.runtime_client import RuntimeClient, RuntimeRefused, RuntimeUnreachable
from jobs.selectors.jobs import job_get
from jobs.services.attempts import attempt_close
from jobs.services.outbox import CANCEL_JOB, outbox_add
from jobs.services.transition import job_transition
from jobs.states import AttemptState, JobState
from tenants.audit.services import audit
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant, User
from tenants.scope import platform_scope, tenant_scope

logger = logging.getLogger(__name__)

REASON = "cancelled_by_user"
_MAY_BE_CANCELLING = frozenset({JobState.STARTING, JobState.RUNNING})


def job_cancel(*, tenant: Tenant, job_id: UUID, by: Actor | User | None = None, why: str = "") -> Job:
    """Ask a job to stop. Again is harmless; a job that succeeded or failed answers 409.

    ``by``: a member, a key or an operator; None: the platform itself. ``why``: for the audit log. Raises
    ApplicationError 404 for a missing and for a foreign job.
    """
    with tenant_scope(tenant):
        for _ in range(3):  # each failed compare-and-swap means that the job moved on; its path is short
            job = job_get(tenant, job_id)
            if job.state in {JobState.CANCELLING, JobState.CANCELLED} or _ask(job, by, why):
                return job
        raise ApplicationError(code="job_finished", status=409, detail=f"The job has already {job.state}.")


@transaction.atomic
def _ask(job: Job, by: Actor | User | None, why: str) -> bool:
    """Queued -> cancelled, or started -> cancelling with the message to the runtime; False if neither holds now."""
    before = {"state": str(job.state)}
    if not job_transition(job, to=JobState.CANCELLED, sources=frozenset({JobState.QUEUED}), reason=REASON):
        if not job_transition(job, to=JobState.CANCELLING, sources=_MAY_BE_CANCELLING, reason=REASON):
            return False
        outbox_add(topic=CANCEL_JOB, key=str(job.pk))
    after = {"state": str(job.state)}
    audit(
        by=by, verb="job.cancelled", target=job, tenant=job.tenant, name=job.name,
        before=before, after=after, reason=why,
    )  # fmt: skip
    return True


@transaction.atomic
def job_stop(*, job: Job, reason: CapReason, message: str) -> bool:
    """Ask a started job to stop at its next safe point and to keep what it made, by the platform itself.

    False if it has not started, has ended, or was asked before.
    """
    if not job_transition(job, to=JobState.CANCELLING, sources=_MAY_BE_CANCELLING, reason=reason, message=message):
        return False
    told: dict[str, Any] = {"reason": str(reason), "step": job.step}
    audit(by=None, verb="job.stopped", target=job, tenant=job.tenant, name=job.name, after=told, reason=message)
    outbox_add(topic=CANCEL_JOB, key=str(job.pk))
    return True


def stop_wish(job: Job) -> StopJob:
    """What the runtime is told of a job that is cancelling: its row says why."""
    if job.reason not in set(CapReason):
        return StopJob()
    return StopJob(keep=True, reason=job.reason, message=job.message)


def cancel_deliver(job_id: UUID, *, runtime: RuntimeClient) -> bool:
    """Tell the runtime to stop a cancelling job's attempt; True if it was told or there was nothing to tell.

    A runtime that does not know the attempt will not confirm: the job ends here, unless a submit may still be on
    its way (the lease says so); the sweep comes back to that one.
    """
    with platform_scope():
        job = Job.objects.filter(pk=job_id, state=JobState.CANCELLING).first()
    if job is None:
        return True
    try:
        if runtime.cancel(str(job.pk), job.attempt, stop_wish(job)) is not None:
            return True
    except (RuntimeUnreachable, RuntimeRefused) as error:
        logger.info("job %s: cancel not delivered, the sweep repeats it: %s", job.pk, error)
        return False
    if job.lease_until is not None and job.lease_until > timezone.now():
        return False
    return _end_unknown(job)


@transaction.atomic
def _end_unknown(job: Job) -> bool:
    attempt_close(job, AttemptState.LOST, reason="unknown_to_runtime")
    message = "The runtime did not have the job any more."
    return job_transition(job, to=JobState.CANCELLED, reason=job.reason or REASON, message=message) is not None
