"""Draining a service: who needs it waits and says so, whoever runs goes on, and it is on record who did it."""

import pytest

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import OutboxMessage, RuntimeSnapshot
from jobs.services.dispatch import Dispatch, job_dispatch
from jobs.services.drain import service_drain, service_undrain
from jobs.services.sweep import reconcile
from tenants.audit.models import AuditEvent
from tenants.errors import ApplicationError
from tenants.models import User
from tenants.scope import platform_scope
from tests.support.factories import UserFactory
from tests.support.jobs import make_job, relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import start_policy_job
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga() -> User:
    """An operator."""
    return UserFactory(email="olga@platform.example", is_staff=True)


def recorded() -> list[tuple[str, str, str, str]]:
    with platform_scope():
        rows = AuditEvent.objects.filter(verb__startswith="service.").order_by("pk")
        return list(rows.values_list("verb", "object_name", "reason", "actor_name"))


def test_a_job_that_needs_a_drained_service_waits_says_so_and_starts_when_it_is_over(
    alice: Person, runtime: InMemoryRuntime, olga: User
) -> None:
    running, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    relay_all(runtime)
    waiting = make_job(alice)
    service_drain(by=olga, service="training", reason="new driver")
    assert job_dispatch(waiting.pk, runtime=runtime) == Dispatch.WAITING
    told = reread(waiting)
    assert (told.state, told.reason, told.attempt) == ("queued", "service_draining", 0)
    assert "training (new driver)" in told.message
    assert reread(running).state == "running", "what runs goes on"
    service_undrain(by=olga, service="training")
    assert OutboxMessage.objects.filter(topic="dispatch_tenant", key=str(alice.tenant.pk)).exists()
    assert job_dispatch(waiting.pk, runtime=runtime) == Dispatch.ACCEPTED


def test_a_job_that_does_not_need_the_service_starts(alice: Person, runtime: InMemoryRuntime, olga: User) -> None:
    service_drain(by=olga, service="environment", reason="new driver")
    job = make_job(alice)
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.ACCEPTED


def test_a_job_that_plays_needs_inference_and_environments(
    alice: Person, runtime: InMemoryRuntime, olga: User
) -> None:
    for service in ("inference", "environment"):
        service_drain(by=olga, service=service, reason="new driver")
        job, _ = start_policy_job(alice, runtime, "evaluation")
        assert reread(job).reason == "service_draining", service
        service_undrain(by=olga, service=service)
    service_drain(by=olga, service="training", reason="new driver")
    job, _ = start_policy_job(alice, runtime, "evaluation")
    assert reread(job).state == "starting"


def test_the_sweep_leaves_waiting_jobs_where_they_are(alice: Person, runtime: InMemoryRuntime, olga: User) -> None:
    job = make_job(alice)
    service_drain(by=olga, service="training", reason="new driver")
    job_dispatch(job.pk, runtime=runtime)
    reconcile(runtime=runtime)
    assert (reread(job).state, reread(job).attempt) == ("queued", 0)


def test_both_acts_are_on_record_and_the_page_knows_at_once(runtime: InMemoryRuntime, olga: User) -> None:
    service_drain(by=olga, service="training", reason="  new driver ")
    service = RuntimeSnapshot.objects.get(journal_id=runtime.journal_id).status["services"][0]
    assert (service["state"], service["reason"]) == ("draining", "new driver")
    service_undrain(by=olga, service="training")
    assert recorded() == [
        ("service.drained", "training", "new driver", olga.email),
        ("service.undrained", "training", "", olga.email),
    ]


@pytest.mark.parametrize(("service", "reason", "pointer"), [("gpu", "x", "/service"), ("training", "  ", "/reason")])
def test_what_cannot_be_drained_is_refused_by_name(
    runtime: InMemoryRuntime, olga: User, service: str, reason: str, pointer: str
) -> None:
    with pytest.raises(ApplicationError) as refused:
        service_drain(by=olga, service=service, reason=reason)
    assert (refused.value.status, refused.value.errors[0].pointer) == (422, pointer)
    assert runtime.drained == {}


def test_without_the_runtime_nothing_is_drained_and_nothing_recorded(runtime: InMemoryRuntime, olga: User) -> None:
    runtime.down = True
    with pytest.raises(ApplicationError) as refused:
        service_drain(by=olga, service="training", reason="new driver")
    assert refused.value.status == 503
    assert recorded() == []
