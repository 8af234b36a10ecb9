"""Celery tasks: nudges to do what the rows already say. Each may run any number of times at once."""

import logging
from uuid import UUID

from celery import shared_task

from jobs import runtime_client
from jobs.services.cancel import cancel_deliver
from jobs.services.dataset_import import import_run
from jobs.services.dispatch import job_dispatch, tenant_dispatch
from jobs.services.reconcile import reconcile_billing
from jobs.services.removal import artifact_remove
from jobs.services.retention import artifacts_expire
from jobs.services.sweep import reconcile as sweep
from tenants.models import User

logger = logging.getLogger(__name__)


@shared_task
def dispatch_job(job_id: str) -> None:
    """Give a queued job to the runtime. Of several workers one claims it."""
    job_dispatch(UUID(job_id), runtime=runtime_client.connect())


@shared_task
def dispatch_tenant(tenant_id: str) -> None:
    """Start what a tenant's freed places, or its new limits, allow."""
    tenant_dispatch(UUID(tenant_id), runtime=runtime_client.connect())


@shared_task
def cancel_job(job_id: str) -> None:
    """Tell the runtime to stop a cancelling job."""
    cancel_deliver(UUID(job_id), runtime=runtime_client.connect())


@shared_task(soft_time_limit=1800, time_limit=1830)
def import_dataset(artifact_id: str) -> None:
    """Copy a recorded dataset from the runtime and take it in. Of several workers one claims it."""
    import_run(UUID(artifact_id), runtime=runtime_client.connect())


@shared_task
def delete_artifact(artifact_id: str) -> None:
    """Have the runtime remove a deleted file."""
    artifact_remove(UUID(artifact_id), runtime=runtime_client.connect())


@shared_task(expires=50)
def apply_retention() -> None:
    """Delete files whose time is over; every minute by beat."""
    if deleted := artifacts_expire():
        logger.info("%d files were deleted: their retention is over", deleted)


@shared_task(expires=10)
def reconcile() -> None:
    """Repair what was left behind; every 5 s by beat. Needs no singleton: each repair is a compare-and-swap."""
    repaired = sweep(runtime=runtime_client.connect())
    if repaired.anything:
        logger.info("reconcile: %s", repaired)


@shared_task(
    name="jobs.tasks.reconcile_books",
    acks_late=False,
    reject_on_worker_lost=False,
    soft_time_limit=7000,
    time_limit=7200,
)
def reconcile_books(operator_id: str | None = None) -> int:
    """Compare measured, metered, rated, booked and billed; nightly by beat, or for an operator. How many differences.

    It may take longer than a message is waited for, so it is acknowledged first: a lost run is started again the next
    night, or by an operator.
    """
    by = User.objects.get(pk=operator_id) if operator_id else None
    return reconcile_billing(by=by).difference_count
