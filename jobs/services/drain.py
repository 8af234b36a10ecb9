"""Draining a service of the runtime: jobs that need it and have not begun wait, what runs goes on to its end."""

from collections.abc import Callable

from django.db import transaction
from django.utils import timezone

from gpu_runtime.protocol.messages import RuntimeStatus
from gpu_runtime.protocol.services import SERVICES_OF_KIND, Service
from jobs import runtime_client
from jobs.models import Job, RuntimeSnapshot
from jobs.runtime_client import RuntimeClient, RuntimeRefused, RuntimeUnreachable
from jobs.services.outbox import DISPATCH_TENANT, outbox_add
from jobs.states import JobState
from tenants.audit.services import audit
from tenants.errors import ApplicationError, FieldError
from tenants.models import User
from tenants.scope import platform_scope

DRAINING = "service_draining"
_REASON_MAX = 500


def service_drain(*, by: User, service: str, reason: str) -> RuntimeStatus:
    """Give a service to no job that has not begun; it survives a restart of the runtime. Again changes the reason.

    Raises ApplicationError: 422 for a service that is none or no reason, 503 if the runtime does not answer.
    """
    wanted, reason = _service(service), reason.strip()
    if not 1 <= len(reason) <= _REASON_MAX:
        raise _invalid("/reason", f"A reason of 1 to {_REASON_MAX} characters is needed; it has {len(reason)}.")
    status = _told(lambda runtime: runtime.service_drain(wanted, reason))
    _record(status, by=by, verb="service.drained", service=wanted, reason=reason)
    return status


def service_undrain(*, by: User, service: str, reason: str = "") -> RuntimeStatus:
    """Give it out again; jobs that waited for it start. Again is harmless. Raises ApplicationError 422 and 503."""
    wanted = _service(service)
    status = _told(lambda runtime: runtime.service_undrain(wanted))
    _record(status, by=by, verb="service.undrained", service=wanted, reason=reason)
    return status


def drained_for(kind: str, status: RuntimeStatus) -> str | None:
    """Why a job of a kind waits, for people; None if every service it needs is given out."""
    drained = [one for one in status.services if one.state == "draining" and one.service in SERVICES_OF_KIND[kind]]
    if not drained:
        return None
    named = ", ".join(f"{one.service} ({one.reason})" for one in drained)
    return f"The operators take out of use: {named}. The job starts when that is over."


def _told(ask: Callable[[RuntimeClient], RuntimeStatus]) -> RuntimeStatus:
    try:
        return ask(runtime_client.connect())
    except RuntimeUnreachable as error:
        detail = "The GPU runtime does not answer. Try again later."
        raise ApplicationError(code="runtime_unreachable", status=503, detail=detail) from error
    except RuntimeRefused as error:
        raise ApplicationError(code=error.code, status=503, detail=error.message) from error


@transaction.atomic
def _record(status: RuntimeStatus, *, by: User, verb: str, service: Service, reason: str) -> None:
    """After the runtime has done it, and not while it does: nobody waits for it with rows locked."""
    snapshot, _ = RuntimeSnapshot.objects.update_or_create(
        journal_id=status.journal_id,
        defaults={"status": status.model_dump(mode="json"), "seen_at": timezone.now()},
    )
    audit(by=by, verb=verb, target=snapshot, tenant=None, name=str(service), reason=reason)
    with platform_scope():
        waiting = Job.objects.filter(state=JobState.QUEUED, reason=DRAINING)
        tenants = list(waiting.order_by("tenant_id").values_list("tenant_id", flat=True).distinct())
    for tenant_id in tenants:
        outbox_add(topic=DISPATCH_TENANT, key=str(tenant_id))


def _service(name: str) -> Service:
    try:
        return Service(name)
    except ValueError:
        raise _invalid("/service", f"There is no service {name!r}. Allowed: {', '.join(Service)}.") from None


def _invalid(pointer: str, detail: str) -> ApplicationError:
    error = FieldError(pointer=pointer, code="invalid", detail=detail)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))
