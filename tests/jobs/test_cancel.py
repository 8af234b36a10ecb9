"""Cancelling: at once while queued, by the runtime's word once started, and never over an outcome that stands."""

import pytest

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import OutboxMessage
from jobs.services.cancel import cancel_deliver, job_cancel
from jobs.services.dispatch import LEASE, Dispatch, job_claim, job_dispatch
from jobs.services.sweep import reconcile
from jobs.services.transition import job_transition
from jobs.states import JobState
from tenants.errors import ApplicationError
from tests.support.jobs import make_job, relay_all, reread, start_job, states_of
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def test_a_queued_job_is_cancelled_at_once(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_job(alice)
    assert job_cancel(tenant=alice.tenant, job_id=job.pk).state == "cancelled"
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.NOT_QUEUED
    assert runtime.submitted == {}


def test_a_running_job_is_cancelling_until_the_runtime_confirms(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    relay_all(runtime)
    assert job_cancel(tenant=alice.tenant, job_id=job.pk).state == "cancelling"
    assert OutboxMessage.objects.filter(topic="cancel_job", key=str(job.pk)).exists()
    assert cancel_deliver(job.pk, runtime=runtime)
    runtime.tell_state(*key, WorkloadState.CANCELLED)
    relay_all(runtime)
    assert states_of(job) == ["queued", "starting", "running", "cancelling", "cancelled"]


def test_cancelling_twice_is_cancelling_once(alice: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_job(alice, runtime)
    for _ in range(2):
        assert job_cancel(tenant=alice.tenant, job_id=job.pk).state == "cancelling"
    assert OutboxMessage.objects.filter(topic="cancel_job").count() == 1


def test_a_job_that_finishes_before_the_cancel_arrives_has_succeeded(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    relay_all(runtime)
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    relay_all(runtime)
    cancel_deliver(job.pk, runtime=runtime)
    assert reread(job).state == "succeeded"
    assert runtime.cancelled == []


def test_a_job_that_has_succeeded_refuses_to_be_cancelled(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    relay_all(runtime)
    with pytest.raises(ApplicationError) as refused:
        job_cancel(tenant=alice.tenant, job_id=job.pk)
    assert (refused.value.status, refused.value.code) == (409, "job_finished")
    assert reread(job).state == "succeeded"


def test_completion_after_the_cancel_read_the_row_wins(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime's end lands between the cancel's read and its compare-and-swap."""
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    raced = False

    def finish_first(*args, **kwargs):
        nonlocal raced
        if not raced:
            raced = True
            relay_all(runtime)
        return job_transition(*args, **kwargs)

    monkeypatch.setattr("jobs.services.cancel.job_transition", finish_first)
    with pytest.raises(ApplicationError, match="job_finished"):
        job_cancel(tenant=alice.tenant, job_id=job.pk)
    assert states_of(job) == ["queued", "starting", "succeeded"]


def test_a_lost_cancel_message_is_sent_again_by_the_sweep(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    runtime.down = True
    assert not cancel_deliver(job.pk, runtime=runtime)
    runtime.down = False
    assert reconcile(runtime=runtime).cancels_sent == 1
    assert runtime.cancelled == [key]


def test_a_job_cancelled_while_its_submit_is_under_way_is_cancelled_in_the_runtime(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(alice)
    submit = runtime.submit

    def cancelled_meanwhile(message):
        job_cancel(tenant=alice.tenant, job_id=job.pk)
        assert not cancel_deliver(job.pk, runtime=runtime), "the runtime does not know it yet; the lease protects it"
        return submit(message)

    monkeypatch.setattr(runtime, "submit", cancelled_meanwhile)
    job_dispatch(job.pk, runtime=runtime)
    assert runtime.cancelled == [(str(job.pk), 1)]


def test_a_cancelling_job_the_runtime_has_lost_ends_here(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(alice)
    monkeypatch.setattr("jobs.services.dispatch.LEASE", -LEASE)
    assert job_claim(reread(job), journal_id=runtime.journal_id)
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    assert cancel_deliver(job.pk, runtime=runtime)
    assert reread(job).state == JobState.CANCELLED


def test_charlie_cannot_cancel_alices_job(alice: Person, charlie: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_job(alice, runtime)
    with pytest.raises(ApplicationError) as refused:
        job_cancel(tenant=charlie.tenant, job_id=job.pk)
    assert refused.value.status == 404
    assert reread(job).state == "starting"
