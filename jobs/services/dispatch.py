"""Queued -> starting: claim a job whose turn it is and hand the attempt to the runtime."""

import logging
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from pydantic import TypeAdapter, ValidationError

from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.messages import DatasetBinding, PolicyBinding, RuntimeStatus, SubmitJob, WorkloadStatus
from gpu_runtime.protocol.schema import DatasetSummary
from jobs.models import Job, JobAttempt
from jobs.runtime_client import RuntimeClient, RuntimeRefused, RuntimeUnreachable
from jobs.selectors.line import InLine
from jobs.services.attempts import attempt_close, attempt_follow
from jobs.services.cancel import cancel_deliver
from jobs.services.caps import cap_of_queued
from jobs.services.drain import DRAINING, drained_for
from jobs.services.places import NOT_FOR_A_PLACE, Wait, line_turns, wait_of
from jobs.services.transition import job_note, job_transition
from jobs.states import ATTEMPT_STATE_OF_WORKLOAD, AttemptState, JobState
from tenants.models import Tenant
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)  # longer than a submit may take (connect + request timeout)
ATTEMPTS_MAX = 5
RUNTIME_AWAY, AWAY_TOLD = "runtime_unreachable", "The GPU runtime does not answer; the job starts when it does."
_TOLD_AT_ONCE = 500  # jobs of one line; the next look at it tells the others
_SPEC: TypeAdapter[JobSpec] = TypeAdapter(JobSpec)


class Dispatch(StrEnum):
    """Outcome of one try."""

    ACCEPTED = "accepted"  # the runtime has it, durably
    NOT_QUEUED = "not_queued"  # somebody else claimed or ended it: nothing to do
    WAITING = "waiting"  # still queued; the reason is on the job
    UNCERTAIN = "uncertain"  # no answer; the lease's expiry finds out
    FAILED = "failed"  # refused for good


def job_dispatch(job_id: UUID, *, runtime: RuntimeClient, status: RuntimeStatus | None = None) -> Dispatch:
    """Give a queued job to the runtime. Any number of workers may try: one attempt comes of it.

    ``status`` is the runtime's, if the caller has just asked; a runtime that is away costs no attempt.
    """
    job = _queued(job_id)
    if job is None:
        return Dispatch.NOT_QUEUED
    try:
        status = status or runtime.status()
    except (RuntimeUnreachable, RuntimeRefused) as error:
        logger.info("job %s waits: %s", job.pk, error)
        job_note(job, reason=RUNTIME_AWAY, message=AWAY_TOLD)
        return Dispatch.WAITING
    if not status.accepting:
        reason = status.reason or "runtime_not_accepting"
        job_note(job, reason=reason, message="The GPU runtime takes no new work; the job starts when it does.")
        return Dispatch.WAITING
    if (why := drained_for(job.kind, status)) is not None:
        job_note(job, reason=DRAINING, message=why)
        return Dispatch.WAITING
    if (reached := cap_of_queued(job)) is not None:
        job_note(job, reason=reached.reason, message=f"{reached.message} It starts when that allows it.")
        return Dispatch.WAITING
    if job.attempt - job.attempts_forgiven >= ATTEMPTS_MAX:
        message = f"The runtime lost this job {ATTEMPTS_MAX} times in a row; that is the limit."
        job_transition(job, to=JobState.FAILED, reason="attempts_exhausted", message=message)
        return Dispatch.FAILED
    try:
        if not job_claim(job, journal_id=status.journal_id):
            return Dispatch.NOT_QUEUED
    except NotItsTurn as waits:
        job_note(job, reason=waits.wait.reason, message=waits.wait.message)
        return Dispatch.WAITING
    return _hand_over(job, runtime)


def tenant_dispatch(tenant_id: UUID, *, runtime: RuntimeClient) -> int:
    """Start every job of a tenant whose turn it is; say of the others what they wait for. Returns how many started."""
    ready = jobs_ready(tenant_id)
    return sum(job_dispatch(job_id, runtime=runtime) == Dispatch.ACCEPTED for job_id in ready)


def jobs_ready(tenant_id: UUID, *, older_than: timedelta = timedelta(0)) -> list[UUID]:
    """Jobs of a tenant whose turn it is, first in line first; those that wait are told why, if that is new."""
    tenant = Tenant.objects.get(pk=tenant_id)
    settled = timezone.now() - older_than
    ready: list[UUID] = []
    told = 0
    for turn in line_turns(tenant):
        if turn.wait is None:
            ready += [turn.job.pk] if turn.job.created_at <= settled else []
        elif told < _TOLD_AT_ONCE and _is_news(turn.job, turn.wait):
            job_waits(turn.job.pk, reason=turn.wait.reason, message=turn.wait.message)
            told += 1
    return ready


def _is_news(job: InLine, wait: Wait) -> bool:
    """Whether the job's reader has been told something else. A reason beside the line stands until it is tried."""
    known = (job.reason, job.message) == (wait.reason, wait.message)
    return not known and job.reason not in NOT_FOR_A_PLACE


def job_waits(job_id: UUID, *, reason: str, message: str) -> None:
    """Tell a queued job's reader why it is not started."""
    job = _queued(job_id)
    if job is not None:
        job_note(job, reason=reason, message=message)


class NotItsTurn(Exception):
    """The job may not start yet."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.reason)
        self.wait = wait


@transaction.atomic
def job_claim(job: Job, *, journal_id: str) -> bool:
    """Queued -> starting with the next attempt number and a lease; False if another worker was faster.

    Whose turn it is is decided with the tenant's row locked, so two claims never share the last place. Raises
    NotItsTurn.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=job.tenant_id)
    wait = wait_of(tenant, job.pk)
    if wait is not None:
        raise NotItsTurn(wait)
    until = timezone.now() + LEASE
    queued = frozenset({JobState.QUEUED})
    if job_transition(job, to=JobState.STARTING, sources=queued, attempt=F("attempt") + 1, lease_until=until) is None:
        return False
    with platform_scope():
        JobAttempt.objects.create(
            tenant_id=job.tenant_id,
            job_id=job.pk,
            number=job.attempt,
            journal_id=journal_id,
            state=AttemptState.DISPATCHING,
        )
    return True


def _hand_over(job: Job, runtime: RuntimeClient) -> Dispatch:
    try:
        message = _message(job)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        told = f"The job was submitted to an earlier release and does not fit this one at {where!r}. Submit it anew."
        return _refuse(job, "specification_outdated", told)
    try:
        answer = runtime.submit(message)
    except RuntimeUnreachable as error:
        if error.maybe_delivered:
            logger.warning("job %s attempt %d: submit without answer: %s", job.pk, job.attempt, error)
            return Dispatch.UNCERTAIN
        return _give_back(job, AttemptState.UNDELIVERED, RUNTIME_AWAY, str(error))
    except RuntimeRefused as error:
        if not error.about_the_request:
            return _give_back(job, AttemptState.REFUSED, error.code, error.message)
        return _refuse(job, error.code, error.message)
    return _accepted(job, answer, runtime)


def _refuse(job: Job, reason: str, message: str) -> Dispatch:
    """For good: trying again cannot help."""
    attempt_close(job, AttemptState.REFUSED, reason=reason)
    job_transition(job, to=JobState.FAILED, reason=reason, message=message)
    return Dispatch.FAILED


@transaction.atomic
def _give_back(job: Job, attempt_state: AttemptState, reason: str, message: str) -> Dispatch:
    """The runtime surely does not have this attempt: back to the queue, the sweep tries again."""
    attempt_close(job, attempt_state, reason=reason)
    starting = frozenset({JobState.STARTING})
    moved = job_transition(job, to=JobState.QUEUED, sources=starting, reason=reason, message=message, lease_until=None)
    if moved is None:  # cancelled meanwhile, and nobody runs it
        with platform_scope():
            why = Job.objects.values("reason", "message").get(pk=job.pk)
        job_transition(job, to=JobState.CANCELLED, **why)
        return Dispatch.NOT_QUEUED
    return Dispatch.WAITING


def _accepted(job: Job, answer: WorkloadStatus, runtime: RuntimeClient) -> Dispatch:
    attempt_follow(job.pk, job.attempt, ATTEMPT_STATE_OF_WORKLOAD[answer.state])
    with platform_scope():
        Job.objects.filter(pk=job.pk, attempt=job.attempt, state=JobState.STARTING).update(lease_until=None)
        state = Job.objects.values_list("state", flat=True).get(pk=job.pk)
    if state == JobState.CANCELLING:  # asked while the submit was on its way: the runtime could not know it then
        cancel_deliver(job.pk, runtime=runtime)
    return Dispatch.ACCEPTED


def _queued(job_id: UUID) -> Job | None:
    with platform_scope():
        jobs = Job.objects.select_related("tenant", "dataset_version", "policy")
        return jobs.filter(pk=job_id, state=JobState.QUEUED).first()


def _message(job: Job) -> SubmitJob:
    return SubmitJob(
        job_id=str(job.pk),
        attempt=job.attempt,
        tenant_id=str(job.tenant_id),
        tenant_weight=job.tenant.weight,
        spec=_SPEC.validate_python(job.spec),
        dataset=_dataset_binding(job),
        policy=_policy_binding(job),
    )


def _dataset_binding(job: Job) -> DatasetBinding | None:
    version = job.dataset_version
    if version is None:
        return None
    return DatasetBinding(
        version_id=str(version.pk),
        storage_key=version.storage_key,
        summary=DatasetSummary.model_validate(version.summary),
    )


def _policy_binding(job: Job) -> PolicyBinding | None:
    adapter = job.policy
    if adapter is None:
        return None
    return PolicyBinding(artifact_id=adapter.runtime_key, sha256=adapter.sha256, base_model=job.base_model)
