"""A job that can never be dispatched ends with its reason, and delays nobody."""

from typing import Any

import pytest

from jobs.models import Job
from jobs.services import outbox, sweep
from jobs.services.dispatch import Dispatch, job_dispatch
from jobs.services.sweep import QUEUED_AGE, reconcile
from tenants.scope import platform_scope
from tests.support.jobs import make_job, reread
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_policy_job
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps look at fresh rows too."""
    monkeypatch.setattr("jobs.services.sweep.QUEUED_AGE", -QUEUED_AGE)
    monkeypatch.setattr(outbox.outbox_drain, "__kwdefaults__", {"older_than": -QUEUED_AGE, "limit": 100})


def outdate(job: Job) -> None:
    """As if an earlier release had admitted what this one does not."""
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(spec=job.spec | {"episodes": 10**7})


def test_a_specification_of_an_earlier_release_fails_with_the_field(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_policy_job(alice, "evaluation")
    outdate(job)
    assert job_dispatch(job.pk, runtime=runtime) == Dispatch.FAILED
    job = reread(job)
    assert (job.state, job.reason) == ("failed", "specification_outdated")
    assert "evaluation.episodes" in job.message
    assert runtime.submitted == {}


def test_a_row_that_breaks_its_repair_does_not_keep_the_others_waiting(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_job(alice), make_job(charlie)
    real = sweep.job_dispatch

    def breaks(job_id: Any, **more: Any) -> Dispatch:
        if job_id == first.pk:
            raise TypeError("nobody thought of this")
        return real(job_id, **more)

    monkeypatch.setattr(sweep, "job_dispatch", breaks)
    assert reconcile(runtime=runtime).dispatched == 1
    assert reread(second).state == "starting"
    assert reread(first).state == "queued"
