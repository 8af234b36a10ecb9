"""Running an ended job once more: a new job of the same specification, admitted like any other."""

import uuid
from typing import Any

import pytest

from jobs.models import Job
from jobs.services.cancel import job_cancel
from tenants.audit.models import AuditEvent
from tenants.models import Tenant
from tenants.scope import platform_scope
from tests.support.jobs import make_job, reread
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db


def ended_job(person: Person, **fields: Any) -> Job:
    job = make_job(person, **fields)
    job_cancel(tenant=person.tenant, job_id=job.pk, by=person.actor)
    return reread(job)


def retry(person: Person, job: Job, **extra: Any) -> Any:
    return person.api.post(f"/api/v1/jobs/{job.pk}/retry", {}, **extra)


def test_an_ended_job_is_submitted_again_as_it_was(story: Story):
    old = ended_job(story.alice, name="push the cube", tags=["night", "cube"], priority=7, training={"steps": 33})
    answer = retry(story.bob, old)
    assert answer.status_code == 202
    new = reread(uuid.UUID(answer.json()["id"]))
    assert answer["Location"] == f"/api/v1/jobs/{new.pk}"
    assert (new.state, new.name, new.priority, new.total_steps) == ("queued", "push the cube", 7, 33)
    assert new.cloned_from_id == old.pk
    assert new.number == old.number + 1
    assert {**new.spec, "cloned_from": None, "tags": None} == {**old.spec, "cloned_from": None, "tags": None}
    assert reread(old).state == "cancelled"
    with platform_scope():
        assert sorted(tag.name for tag in new.tags.all()) == ["cube", "night"]


def test_it_keeps_the_name_and_tags_the_old_job_has_now(story: Story):
    old = ended_job(story.alice, name="first name", tags=["old"])
    with platform_scope():
        Job.objects.filter(pk=old.pk).update(name="better name")
        old.tags.all().delete()
    new = reread(uuid.UUID(retry(story.alice, old).json()["id"]))
    assert (new.name, new.spec["tags"]) == ("better name", [])


def test_a_live_job_is_not_run_twice(story: Story):
    job = make_job(story.alice)
    answer = retry(story.alice, job)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("job-not-ended")
    with platform_scope():
        assert Job.objects.filter(tenant=story.alice.tenant).count() == 1


def test_a_repeat_with_the_same_key_makes_no_second_job(story: Story):
    old, key = ended_job(story.alice), str(uuid.uuid4())
    first = retry(story.alice, old, headers={"Idempotency-Key": key})
    second = retry(story.alice, old, headers={"Idempotency-Key": key})
    assert first.json()["id"] == second.json()["id"]
    assert second["Idempotent-Replayed"] == "true"
    with platform_scope():
        assert Job.objects.filter(cloned_from=old.pk).count() == 1


def test_admission_judges_it_like_any_new_job(story: Story):
    old = ended_job(story.alice)
    with platform_scope():
        Tenant.objects.filter(pk=story.alice.tenant.pk).update(state="paused", paused_reason="an unpaid invoice")
    answer = retry(story.alice, old)
    assert answer.status_code == 403
    with platform_scope():
        assert Job.objects.filter(cloned_from=old.pk).count() == 0


def test_the_audit_log_says_who_asked(story: Story):
    new_id = retry(story.bob, ended_job(story.alice)).json()["id"]
    with platform_scope():
        event = AuditEvent.objects.get(verb="job.submitted", object_id=new_id)
    assert event.actor_kind == "key"
    assert story.bob.key_row.prefix in event.actor_name


def test_who_may_not_submit_or_is_of_another_lab_does_not_retry(story: Story):
    old = ended_job(story.alice)
    assert retry(story.viewer, old).status_code == 403
    assert retry(story.charlie, old).status_code == 404
    assert retry(story.charlie, Job(pk=uuid.uuid4())).status_code == 404
