"""An operator has an ended job run again: a new attempt, nothing of the old one counts any more, and it is audited."""

from decimal import Decimal

import pytest
from django.utils import timezone

from gpu_runtime.protocol.messages import UsageLine, WorkloadState
from jobs.models import Artifact, Job
from jobs.services import dispatch
from jobs.services.cancel import job_cancel
from jobs.services.dispatch import Dispatch, job_dispatch
from jobs.services.requeue import job_requeue
from tenants.audit.models import AuditEvent
from tenants.billing.ledger.holds import reserved
from tenants.errors import ApplicationError
from tenants.models import User
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.support.factories import UserFactory
from tests.support.jobs import make_job, relay_all, reread, start_job, states_of
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_job
from tests.support.story import Person
from tests.support.usage import usage_ingest

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(db: None) -> User:
    return UserFactory(is_staff=True)


def refusal(operator: User, job: Job) -> ApplicationError:
    with pytest.raises(ApplicationError) as refused:
        job_requeue(by=operator, job=reread(job))
    return refused.value


def test_a_failed_job_runs_again_as_its_next_attempt(alice: Person, operator: User, runtime: InMemoryRuntime):
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.FAILED, reason="loss_not_finite")
    relay_all(runtime)
    assert reserved(alice.tenant) == 0
    job_requeue(by=operator, job=reread(job), reason="the base was broken")
    again = reread(job)
    assert (again.state, again.reason, again.finished_at) == ("queued", "requeued_by_operator", None)
    assert reserved(alice.tenant) > 0
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.ACCEPTED
    assert (str(job.pk), 2) in runtime.submitted
    assert states_of(job) == ["queued", "starting", "failed", "queued", "starting"]
    with platform_scope():
        act = AuditEvent.objects.get(verb="job.requeued")
    assert (act.actor_kind, act.reason, act.before["reason"]) == ("operator", "the base was broken", "loss_not_finite")


def test_what_the_ended_attempt_still_reports_has_no_effect(alice: Person, operator: User, runtime: InMemoryRuntime):
    """The job was ended here while its attempt ran on: its own end must not end the job a second time."""
    job, key = start_job(alice, runtime)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(state="failed", finished_at=timezone.now())
    job_requeue(by=operator, job=reread(job))
    runtime.tell_state(*key, WorkloadState.CANCELLED)
    relay_all(runtime)
    assert reread(job).state == "queued"
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.ACCEPTED


def test_a_cancelled_job_that_never_started_may_start_after_all(alice: Person, operator: User):
    job = make_job(alice)
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    assert job_requeue(by=operator, job=reread(job)).state == "queued"


def test_attempts_that_the_runtime_lost_are_forgiven(
    alice: Person, operator: User, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dispatch, "ATTEMPTS_MAX", 1)
    job = make_job(alice)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(attempt=1)
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.FAILED
    job_requeue(by=operator, job=reread(job))
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.ACCEPTED


@pytest.mark.parametrize("state", ["queued", "starting", "running", "cancelling", "succeeded"])
def test_a_job_that_has_not_ended_badly_is_left_alone(alice: Person, operator: User, state: str):
    job = make_job(alice)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(state=state)
    assert refusal(operator, job).code == "job_not_ended"
    assert reread(job).state == state


def test_it_is_refused_where_the_policy_is_gone(alice: Person, operator: User):
    adapter = make_adapter(alice)
    job = make_policy_job(alice, "evaluation", adapter)
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    with platform_scope():
        Artifact.objects.filter(pk=adapter.pk).update(deleted_at=timezone.now())
    assert refusal(operator, job).code == "policy_deleted"


def test_it_is_refused_where_the_money_does_not_suffice(alice: Person, operator: User):
    job = make_job(alice, budget={"max_cost": "5"})
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    line = UsageLine(meter="train.samples", quantity=40_000)  # 2
    book = {"tenant": alice.tenant, "job_id": job.pk, "source": "j", "occurred_at": timezone.now()}
    usage_ingest(event_id="1", lines=(line,), **book)
    quota_set(by=operator, tenant=alice.tenant, resource=Resource.MONEY_PER_MONTH, limit=4)
    assert refusal(operator, job).code == "spend_limit_reached"
    assert reread(job).state == "cancelled"
    quota_set(by=operator, tenant=alice.tenant, resource=Resource.MONEY_PER_MONTH, limit=5)
    job_requeue(by=operator, job=reread(job))
    assert reserved(alice.tenant) == Decimal(3), "the rest of its own budget"
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    usage_ingest(event_id="2", lines=(UsageLine(meter="train.samples", quantity=60_000),), **book)
    assert refusal(operator, job).code == "budget_reached"
