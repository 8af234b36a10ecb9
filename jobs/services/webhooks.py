"""What a tenant's systems are told when a job starts or ends."""

from jobs.models import Job
from jobs.states import JobState
from tenants.webhooks.events import EventType
from tenants.webhooks.services import webhook_event

_EVENT_OF_STATE = {
    JobState.RUNNING: EventType.JOB_STARTED,
    JobState.SUCCEEDED: EventType.JOB_SUCCEEDED,
    JobState.FAILED: EventType.JOB_FAILED,
    JobState.CANCELLED: EventType.JOB_CANCELLED,
}


def job_webhook(job: Job) -> None:
    """Tell of the state a job has just entered, if it is one that is told. Inside the transition's transaction."""
    kind = _EVENT_OF_STATE.get(JobState(job.state))
    if kind is None:
        return
    data = {
        "job_id": str(job.pk),
        "name": job.name,
        "kind": job.kind,
        "project_id": str(job.project_id),
        "state": str(job.state),
        "reason": job.reason,
        "message": job.message,
        "attempt": job.attempt,
    }
    webhook_event(job.tenant_id, kind, data)
