"""The tasks are there under the names that messages and the schedule use, and do what the rows say."""

import pytest
from django.conf import settings

from control_plane import celery_app
from jobs import tasks
from jobs.services.cancel import job_cancel
from jobs.services.outbox import TASK_OF_TOPIC, outbox_add
from tests.support.jobs import make_job, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person


def test_every_message_and_every_beat_names_a_task_that_exists() -> None:
    celery_app.loader.import_default_modules()
    named = set(TASK_OF_TOPIC.values()) | {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert named <= set(celery_app.tasks)


@pytest.mark.django_db
def test_a_message_of_an_unknown_kind_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError, match="dispatch_job"):
        outbox_add(topic="tidy_up", key="1")


@pytest.mark.django_db
def test_the_tasks_dispatch_cancel_and_reconcile(alice: Person, runtime: InMemoryRuntime) -> None:
    job = make_job(alice)
    tasks.dispatch_job(str(job.pk))
    assert reread(job).state == "starting"
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    tasks.cancel_job(str(job.pk))
    assert runtime.cancelled == [(str(job.pk), 1)]
    tasks.reconcile()


@pytest.mark.django_db
def test_a_message_that_is_delivered_twice_or_too_late_does_nothing(alice: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_job(alice, runtime)
    before = reread(job).last_seq
    tasks.dispatch_job(str(job.pk))
    tasks.cancel_job(str(job.pk))
    tasks.dispatch_job("00000000-0000-4000-8000-000000000000")
    assert reread(job).last_seq == before
    assert runtime.cancelled == []
