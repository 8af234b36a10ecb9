"""Queued -> starting: one attempt, whoever tries; what the runtime answers decides what follows."""

import threading
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Job, JobAttempt
from jobs.runtime_client import RuntimeRefused
from jobs.services import dispatch, outbox
from jobs.services.dispatch import Dispatch, job_dispatch
from jobs.services.sweep import QUEUED_AGE, reconcile
from jobs.states import AttemptState
from tenants.scope import platform_scope
from tests.support.jobs import events_of, make_job, make_spec, make_version, relay_all, reread, start_job, states_of
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person


@pytest.fixture
def _old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps look at fresh rows too."""
    monkeypatch.setattr("jobs.services.sweep.QUEUED_AGE", -QUEUED_AGE)
    monkeypatch.setattr(outbox.outbox_drain, "__kwdefaults__", {"older_than": -QUEUED_AGE, "limit": 100})


def attempts_of(job: Job) -> list[tuple[int, str]]:
    with platform_scope():
        return list(JobAttempt.objects.filter(job_id=job.pk).order_by("number").values_list("number", "state"))


def expire_lease(job: Job) -> None:
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(lease_until=timezone.now())


@pytest.mark.django_db
def test_the_runtime_gets_the_specification_and_the_bound_dataset(alice: Person, runtime: InMemoryRuntime) -> None:
    version = make_version(alice)
    answer = alice.api.post("/api/v1/jobs", make_spec(version))
    job = reread(answer.data["id"])
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.ACCEPTED
    message = runtime.submitted[str(job.pk), 1]
    assert message.tenant_id == str(alice.tenant.pk)
    assert message.dataset.storage_key == version.storage_key
    assert message.spec.model_dump(mode="json") == job.spec
    assert attempts_of(job) == [(1, "accepted")]
    assert reread(job).lease_until is None


@pytest.mark.django_db
def test_dispatching_again_does_nothing(alice: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_job(alice, runtime)
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.NOT_QUEUED
    assert attempts_of(job) == [(1, "accepted")]


@pytest.mark.django_db(transaction=True)
def test_eight_workers_that_claim_one_job_make_exactly_one_attempt(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_job(alice)
    barrier = threading.Barrier(8)
    outcomes: list[Dispatch] = []

    def work() -> None:
        barrier.wait()
        try:
            outcomes.append(job_dispatch(job.pk, runtime=runtime))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [Dispatch.ACCEPTED] + [Dispatch.NOT_QUEUED] * 7
    assert list(runtime.submitted) == [(str(job.pk), 1)]
    assert len(attempts_of(job)) == 1
    assert states_of(job) == ["queued", "starting"]


@pytest.mark.django_db(transaction=True)
def test_without_the_compare_and_swap_the_same_race_makes_several_attempts(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a claim that reads and then writes. All read "queued" before the first one writes."""
    job = make_job(alice)
    barrier = threading.Barrier(2)

    def careless_claim(job: Job, *, journal_id: str) -> bool:
        barrier.wait()
        with platform_scope():
            number = JobAttempt.objects.filter(job_id=job.pk).count() + 1
            barrier.wait()
            JobAttempt.objects.bulk_create(
                [JobAttempt(tenant_id=job.tenant_id, job_id=job.pk, number=number)], ignore_conflicts=True
            )
            job.attempt = number
        return True

    monkeypatch.setattr(dispatch, "job_claim", careless_claim)
    outcomes: list[Dispatch] = []

    def work() -> None:
        try:
            outcomes.append(job_dispatch(job.pk, runtime=runtime))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Dispatch.ACCEPTED] * 2, "the checker above would fail: two workers believe they own the job"


@pytest.mark.django_db
def test_an_unreachable_runtime_costs_no_attempt_and_the_job_says_why_it_waits(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job = make_job(alice)
    runtime.down = True
    for _ in range(3):
        assert job_dispatch(job.pk, runtime=runtime) == Dispatch.WAITING
    assert (reread(job).state, reread(job).reason, attempts_of(job)) == ("queued", "runtime_unreachable", [])
    assert len(events_of(job)) == 2, "the reason is told once"


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_the_sweep_dispatches_what_a_dead_broker_or_runtime_left_queued(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr(outbox.current_app, "send_task", refuse)
    version = make_version(alice)
    with django_capture_on_commit_callbacks(execute=True):
        answer = alice.api.post("/api/v1/jobs", make_spec(version))
    assert answer.status_code == 202
    runtime.down = True
    reconcile(runtime=runtime)
    assert reread(answer.data["id"]).reason == "runtime_unreachable"
    runtime.down = False
    assert reconcile(runtime=runtime).dispatched == 1
    assert reread(answer.data["id"]).state == "starting"


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_an_unsent_message_is_sent_once_the_broker_is_back(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(alice)
    sent: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(outbox.current_app, "send_task", lambda name, args, retry: sent.append((name, args)))
    runtime.down = True
    assert reconcile(runtime=runtime).outbox_sent == 1
    assert reconcile(runtime=runtime).outbox_sent == 0
    assert sent == [("jobs.tasks.dispatch_job", [str(job.pk)])]


@pytest.mark.django_db
def test_a_runtime_that_takes_no_work_gives_its_reason_to_the_waiting_job(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job = make_job(alice)
    runtime.accepting, runtime.reason = False, "journal_unwritable"
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.WAITING
    assert (reread(job).state, reread(job).reason) == ("queued", "journal_unwritable")


@pytest.mark.django_db
def test_a_refused_job_fails_with_the_runtimes_own_words(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_job(alice)
    runtime.refuse_submit = RuntimeRefused(status=422, code="tap_out_of_range", message="head.tap layer:99: 4 layers")
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.FAILED
    job = reread(job)
    assert (job.state, job.reason, job.message) == ("failed", "tap_out_of_range", "head.tap layer:99: 4 layers")
    assert attempts_of(job) == [(1, "refused")]


@pytest.mark.django_db
def test_a_runtime_in_trouble_gives_the_job_back_to_the_queue(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_job(alice)
    runtime.refuse_submit = RuntimeRefused(status=503, code="disk_full", message="no space")
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.WAITING
    assert (reread(job).state, reread(job).reason) == ("queued", "disk_full")
    runtime.refuse_submit = None
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.ACCEPTED
    assert attempts_of(job) == [(1, "refused"), (2, "accepted")]


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_a_submit_whose_answer_was_lost_is_adopted_after_its_lease(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_job(alice)
    runtime.lose_answer_of_submit = True
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.UNCERTAIN
    assert reconcile(runtime=runtime).adopted == 0, "the lease still runs"
    expire_lease(job)
    assert reconcile(runtime=runtime).adopted == 1
    assert attempts_of(job) == [(1, "accepted")]
    assert reread(job).lease_until is None


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_a_worker_that_died_before_its_submit_is_followed_by_a_new_attempt(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job = make_job(alice)
    assert dispatch.job_claim(reread(job), journal_id=runtime.journal_id)
    expire_lease(job)
    assert reconcile(runtime=runtime).requeued == 1
    assert reconcile(runtime=runtime).dispatched == 1
    assert attempts_of(job) == [(1, "lost"), (2, "accepted")]


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_a_running_job_whose_journal_is_gone_starts_again_as_the_next_attempt(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    relay_all(runtime)
    assert reconcile(runtime=runtime).requeued == 0
    runtime.forget()
    assert reconcile(runtime=runtime).requeued == 1
    assert reconcile(runtime=runtime).dispatched == 1
    relay_all(runtime)
    assert attempts_of(job) == [(1, "lost"), (2, "accepted")]
    assert states_of(job) == ["queued", "starting", "running", "queued", "starting"]


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_a_job_the_runtime_keeps_losing_fails_after_five_attempts(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_job(alice)
    for _ in range(2 * dispatch.ATTEMPTS_MAX + 2):
        reconcile(runtime=runtime)
        runtime.forget()
    job = reread(job)
    assert (job.state, job.reason, job.attempt) == ("failed", "attempts_exhausted", dispatch.ATTEMPTS_MAX)


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_a_live_attempt_of_a_job_that_has_moved_on_is_stopped(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(state="failed")
    assert reconcile(runtime=runtime).orphans_stopped == 1
    assert runtime.cancelled == [key]
    runtime.tell_state(*key, WorkloadState.CANCELLED)
    relay_all(runtime)
    assert reconcile(runtime=runtime).orphans_stopped == 0
    assert attempts_of(job) == [(1, AttemptState.CANCELLED)]
    assert reread(job).state == "failed"


@pytest.mark.django_db
@pytest.mark.usefixtures("_old_enough")
def test_a_quiet_platform_has_nothing_to_repair(alice: Person, runtime: InMemoryRuntime) -> None:
    start_job(alice, runtime)
    reconcile(runtime=runtime)
    assert not reconcile(runtime=runtime).anything


@pytest.mark.django_db
def test_the_tables_used_by_claims_are_really_locked_by_this_database(alice: Person) -> None:
    """The race tests mean nothing on a database that serialises them by luck: it must be a file or a server."""
    assert connection.vendor in {"sqlite", "postgresql"}
    assert ":memory:" not in str(connection.settings_dict["NAME"])
