"""A limit that was changed: the jobs that waited for it are looked at again at once."""

from typing import Any
from uuid import UUID

from jobs.models import Job
from jobs.services.outbox import DISPATCH_TENANT, outbox_add
from jobs.states import JobState
from tenants.quotas.signals import limits_changed
from tenants.scope import platform_scope


def dispatch_waiting(sender: Any, *, tenant_id: UUID | None, **_: Any) -> None:
    """One message for each tenant concerned that has jobs waiting; in the transaction of the change."""
    with platform_scope():
        waiting = Job.objects.filter(state=JobState.QUEUED)
        if tenant_id is not None:
            waiting = waiting.filter(tenant_id=tenant_id)
        for waiting_tenant in waiting.order_by("tenant_id").values_list("tenant_id", flat=True).distinct():
            outbox_add(topic=DISPATCH_TENANT, key=str(waiting_tenant))


def connect() -> None:
    limits_changed.connect(dispatch_waiting, dispatch_uid="jobs.dispatch_waiting")
