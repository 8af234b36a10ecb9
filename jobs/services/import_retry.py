"""An import that was given up is tried again because its tenant asks."""

from uuid import UUID

from django.db import transaction

from jobs.models import DatasetImport, ImportState, Job
from jobs.selectors.imports import import_of_job
from jobs.selectors.jobs import job_get
from jobs.services.dataset_import import TRIES_MAX
from jobs.services.outbox import IMPORT_DATASET, outbox_add
from jobs.services.transition import job_log
from tenants.audit.services import audit
from tenants.errors import ApplicationError
from tenants.identity import Actor
from tenants.models import Tenant, User
from tenants.scope import tenant_scope


@transaction.atomic
def import_retry(*, tenant: Tenant, job_id: UUID, by: Actor | User | None = None) -> Job:
    """A full round of tries more for an import that failed; one that goes on, or is done, is left as it is.

    Raises ApplicationError 404 for a missing and for a foreign job, 409 where the job has published no dataset.
    """
    with tenant_scope(tenant):
        job = job_get(tenant, job_id)
        row = import_of_job(tenant, job_id)
        if row is None:
            detail = "The job has published no dataset; rollout jobs do when they succeed."
            raise ApplicationError(code="no_recording", status=409, detail=detail)
        failed = DatasetImport.objects.filter(pk=row.pk, state=ImportState.FAILED, attempts=row.attempts)
        if failed.update(state=ImportState.WAITING, claimed_until=None, attempts=_next_round(row.attempts)):
            job_log(job, level="info", message="Taking in the recorded episodes is tried again on request.")
            outbox_add(topic=IMPORT_DATASET, key=str(row.artifact_id))
            audit(by=by, verb="job.import_retried", target=job, tenant=tenant, name=job.name)
        return job


def _next_round(attempts: int) -> int:
    """Claims are numbered on, never anew: the number fences workers that come back late."""
    return -(-attempts // TRIES_MAX) * TRIES_MAX
