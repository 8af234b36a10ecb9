"""`reconcile`: find and repair what a lost message, a dead worker or a restarted runtime left behind.

Every repair is a compare-and-swap, so any number of sweeps may run at once; the second finds nothing to do. All
numbers it returns are zero on a quiet, healthy platform.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from gpu_runtime.protocol.messages import TERMINAL_WORKLOAD_STATES, RuntimeStatus, WorkloadState
from jobs.models import Job, JobAttempt
from jobs.runtime_client import RuntimeClient, RuntimeRefused, RuntimeUnreachable
from jobs.services.attempts import attempt_adopt, attempt_close, attempt_follow
from jobs.services.cancel import cancel_deliver
from jobs.services.caps import caps_sweep
from jobs.services.dataset_import import imports_sweep
from jobs.services.dispatch import AWAY_TOLD, RUNTIME_AWAY, Dispatch, job_dispatch, job_waits, jobs_ready
from jobs.services.outbox import outbox_drain, outbox_prune
from jobs.services.removal import features_sweep, removals_sweep
from jobs.services.transition import job_transition
from jobs.states import ATTEMPT_STATE_OF_WORKLOAD, ATTEMPT_TERMINAL, TERMINAL, AttemptState, JobState
from tenants.datasets.services import sweep_unvalidated
from tenants.scope import platform_scope

logger = logging.getLogger(__name__)

QUEUED_AGE = timedelta(seconds=2)  # younger ones have their own message under way
_LATE_SUBMIT = timedelta(minutes=2)
_LIMIT = 200  # rows per kind and sweep; the next sweep takes the rest
_BUDGET_S = 20.0  # a sweep is a short task


@dataclass(slots=True, kw_only=True)
class Repaired:
    """What one sweep did."""

    outbox_sent: int = 0
    outbox_pruned: int = 0
    validations_sent: int = 0  # dataset versions whose message or worker was lost
    imports_sent: int = 0  # recorded datasets of which the same is true
    dispatched: int = 0
    adopted: int = 0  # the runtime has the attempt after all
    requeued: int = 0  # the runtime lost the attempt
    cancels_sent: int = 0
    removed: int = 0  # deleted files and old checkpoints that the runtime has let go of now
    capped: int = 0  # jobs at a limit that nobody had stopped
    orphans_stopped: int = 0  # attempts that ran on though their job had moved on

    @property
    def anything(self) -> bool:
        return any(getattr(self, item.name) for item in fields(self))

    def __str__(self) -> str:
        return ", ".join(
            f"{item.name}={getattr(self, item.name)}" for item in fields(self) if getattr(self, item.name)
        )


def reconcile(*, runtime: RuntimeClient) -> Repaired:
    """One sweep. A runtime that is away costs only the repairs that need it."""
    repaired = Repaired(outbox_sent=outbox_drain(), outbox_pruned=outbox_prune())
    repaired.capped = len(caps_sweep())
    try:
        status = runtime.status()
    except (RuntimeUnreachable, RuntimeRefused) as error:
        logger.info("sweep without the runtime: %s", error)
        for job_id in _queued():
            job_waits(job_id, reason=RUNTIME_AWAY, message=AWAY_TOLD)
    else:
        _with_runtime(runtime, status, repaired, deadline_s=monotonic() + _BUDGET_S)
        repaired.removed = removals_sweep(runtime=runtime) + features_sweep(status.feature_store, runtime=runtime)
    repaired.validations_sent = sweep_unvalidated()
    repaired.imports_sent = imports_sweep()
    return repaired


def _with_runtime(runtime: RuntimeClient, status: RuntimeStatus, repaired: Repaired, *, deadline_s: float) -> None:
    repairs: Iterable[tuple[Iterable[Any], Callable[..., None]]] = (
        (_ready(), _dispatch),
        (_uncertain(status.journal_id), _resolve),
        (_cancelling(), _cancel_again),
        (_orphans(), _stop_orphan),
    )
    for rows, repair in repairs:
        for row in rows:
            if monotonic() > deadline_s:
                return
            try:
                repair(row, runtime, status, repaired)
            except (RuntimeUnreachable, RuntimeRefused) as error:
                logger.info("sweep interrupted: %s", error)
                return
            except Exception:  # one row's trouble must not keep the others waiting
                logger.exception("sweep: %s of %s broke", repair.__name__, row)


def _queued() -> list[UUID]:
    with platform_scope():
        waiting = Job.objects.filter(state=JobState.QUEUED, created_at__lte=timezone.now() - QUEUED_AGE)
        return list(waiting.order_by("created_at").values_list("pk", flat=True)[:_LIMIT])


def _ready() -> list[UUID]:
    """Jobs whose turn it is and whose message was lost, tenant by tenant; the others learn what they wait for."""
    with platform_scope():
        waiting = Job.objects.filter(state=JobState.QUEUED, created_at__lte=timezone.now() - QUEUED_AGE)
        tenants = list(waiting.order_by("tenant_id").values_list("tenant_id", flat=True).distinct())
    return [job_id for tenant_id in tenants for job_id in jobs_ready(tenant_id, older_than=QUEUED_AGE)]


def _dispatch(job_id: UUID, runtime: RuntimeClient, status: RuntimeStatus, repaired: Repaired) -> None:
    repaired.dispatched += job_dispatch(job_id, runtime=runtime, status=status) == Dispatch.ACCEPTED


def _uncertain(journal_id: str) -> list[Job]:
    """Started jobs whose attempt the runtime may not have: the lease ran out, or the journal is another one."""
    with platform_scope():
        present = JobAttempt.objects.filter(job_id=OuterRef("pk"), number=OuterRef("attempt"))
        lease_over = Q(state=JobState.STARTING, lease_until__lte=timezone.now())
        other_journal = Q(Exists(present.exclude(journal_id=journal_id)), lease_until=None)
        started = Job.objects.filter(state__in=[JobState.STARTING, JobState.RUNNING])
        return list(started.filter(lease_over | other_journal).order_by("created_at")[:_LIMIT])


def _resolve(job: Job, runtime: RuntimeClient, status: RuntimeStatus, repaired: Repaired) -> None:
    """Ask the runtime: adopt what it has, requeue what it does not. The relay brings everything else."""
    known = runtime.job_status(str(job.pk), job.attempt)
    if known is None:
        repaired.requeued += _requeue(job)
        return
    attempt_adopt(job.pk, job.attempt, journal_id=status.journal_id)
    attempt_follow(job.pk, job.attempt, _open_state(known.state))
    with platform_scope():
        Job.objects.filter(pk=job.pk, attempt=job.attempt, state=JobState.STARTING).update(lease_until=None)
    repaired.adopted += 1


def _open_state(workload_state: WorkloadState) -> AttemptState:
    """How far an adopted attempt is. Its end is told by the journal only, with everything that came before it."""
    state = ATTEMPT_STATE_OF_WORKLOAD[workload_state]
    return AttemptState.RUNNING if state in ATTEMPT_TERMINAL else state


@transaction.atomic
def _requeue(job: Job) -> bool:
    attempt_close(job, AttemptState.LOST, reason="runtime_lost_attempt")
    started = frozenset({JobState.STARTING, JobState.RUNNING})
    message = f"The runtime lost attempt {job.attempt}; the job starts again."
    moved = job_transition(
        job, to=JobState.QUEUED, sources=started, reason="runtime_lost_attempt", message=message, lease_until=None
    )
    return moved is not None


def _cancelling() -> list[Job]:
    with platform_scope():
        return list(Job.objects.filter(state=JobState.CANCELLING).order_by("created_at")[:_LIMIT])


def _cancel_again(job: Job, runtime: RuntimeClient, status: RuntimeStatus, repaired: Repaired) -> None:
    repaired.cancels_sent += cancel_deliver(job.pk, runtime=runtime)


def _orphans() -> list[JobAttempt]:
    """Attempts that may be live in the runtime though their job has ended or has a newer attempt.

    Among them those just declared lost: a submit that was long under way may arrive after that.
    """
    with platform_scope():
        unfinished = JobAttempt.objects.exclude(state__in=ATTEMPT_TERMINAL)
        lost = JobAttempt.objects.filter(state=AttemptState.LOST, finished_at__gte=timezone.now() - _LATE_SUBMIT)
        moved_on = Q(job__state__in=TERMINAL) | Q(number__lt=F("job__attempt"))
        return list((unfinished.filter(moved_on) | lost).order_by("pk")[:_LIMIT])


def _stop_orphan(attempt: JobAttempt, runtime: RuntimeClient, status: RuntimeStatus, repaired: Repaired) -> None:
    known = runtime.job_status(str(attempt.job_id), attempt.number)
    if known is None:
        attempt_follow(attempt.job_id, attempt.number, AttemptState.LOST, reason="unknown_to_runtime")
    elif known.state not in TERMINAL_WORKLOAD_STATES:
        runtime.cancel(str(attempt.job_id), attempt.number)
        repaired.orphans_stopped += 1
