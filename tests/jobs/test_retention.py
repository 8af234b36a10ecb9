"""Deleting published files, and keeping them for so many days: at once here, later at a runtime that was away."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from gpu_runtime.protocol.messages import WorkloadState
from jobs.models import Artifact, Job, JobAttempt, OutboxMessage
from jobs.runtime_client import RuntimeRefused
from jobs.services.removal import CHECKPOINTS_KEPT, artifact_remove
from jobs.services.retention import artifacts_expire
from jobs.services.sweep import reconcile
from jobs.tasks import delete_artifact
from tenants.audit.models import AuditEvent
from tenants.quotas.storage import storage_expected, storage_of
from tenants.scope import platform_scope
from tests.support.dataset_imports import recorded
from tests.support.jobs import make_version, relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_policy_spec, start_policy_job
from tests.support.service_steps import publish, succeed
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def published(person: Person, runtime: InMemoryRuntime) -> tuple[Job, UUID]:
    """A job that succeeded with a policy, and the id of its file."""
    job, key = start_job(person, runtime)
    publish(runtime, key, "adapter", b"weights" * 100)
    runtime.checkpoints[key] = 5000
    succeed(runtime, key, step=200, total_steps=200)
    relay_all(runtime)
    with platform_scope():
        return reread(job), Artifact.objects.get(job=job).pk


def row(artifact_id: UUID) -> Artifact:
    with platform_scope():
        return Artifact.objects.get(pk=artifact_id)


def used(person: Person) -> int:
    stored, expected = storage_of(person.tenant), storage_expected(person.tenant)
    assert stored == expected, "the account is what the rows add up to"
    return stored.used_bytes


def delete(person: Person, artifact_id: UUID) -> Any:
    return person.api.delete(f"/api/v1/artifacts/{artifact_id}")


def acts(verb: str) -> list[AuditEvent]:
    with platform_scope():
        return list(AuditEvent.objects.filter(verb=verb).order_by("pk"))


def test_a_published_file_takes_storage_once_however_often_it_is_told(alice: Person, runtime: InMemoryRuntime) -> None:
    before = used(alice)
    _, artifact_id = published(alice, runtime)
    size = row(artifact_id).size_bytes
    assert used(alice) == before + size > before
    (event,) = [event for event in runtime.journal if event.body.type == "artifact"]
    runtime.tell(event.job_id, event.attempt, event.body)
    relay_all(runtime)
    assert used(alice) == before + size


def test_deleting_takes_effect_at_once_and_the_runtime_hears_of_it(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = published(alice, runtime)
    before, size = used(alice), row(artifact_id).size_bytes
    assert delete(alice, artifact_id).status_code == 204
    assert used(alice) == before - size
    download = alice.api.get(f"/api/v1/artifacts/{artifact_id}/download")
    assert (download.status_code, download.json()["type"]) == (410, "urn:joynexus:problem:artifact-deleted")
    (listed,) = alice.api.get(f"/api/v1/jobs/{job.pk}/artifacts").json()["results"]
    assert listed["deleted_at"] is not None
    assert row(artifact_id).runtime_key in runtime.artifacts, "it is told by message, not while the user waits"
    assert OutboxMessage.objects.filter(topic="delete_artifact", key=str(artifact_id)).count() == 1
    delete_artifact(str(artifact_id))
    assert runtime.artifacts == {}
    assert row(artifact_id).removed_at is not None
    assert runtime.checkpoints == {}, "nobody resumes what has ended"
    (act,) = acts("artifact.deleted")
    assert (act.object_id, act.actor_name.startswith(alice.key_row.name)) == (str(artifact_id), True)


def test_deleting_again_is_harmless(alice: Person, runtime: InMemoryRuntime) -> None:
    _, artifact_id = published(alice, runtime)
    delete(alice, artifact_id)
    after = used(alice)
    assert delete(alice, artifact_id).status_code == 204
    assert used(alice) == after
    assert len(acts("artifact.deleted")) == 1
    assert artifact_remove(artifact_id, runtime=runtime)
    assert artifact_remove(artifact_id, runtime=runtime)


def test_a_file_that_a_live_job_starts_from_stays_until_that_has_ended(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    user, key = start_policy_job(alice, runtime, "evaluation")
    artifact_id = reread(user).policy_id
    refused = delete(alice, artifact_id)
    assert refused.status_code == 409
    assert str(user.pk) in refused.json()["detail"]
    runtime.tell_state(*key, WorkloadState.FAILED, reason="x")
    relay_all(runtime)
    assert delete(alice, artifact_id).status_code == 204


def test_episodes_on_their_way_into_the_datasets_are_not_deleted_under_the_import(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    _, artifact_id = recorded(alice, runtime)
    refused = delete(alice, artifact_id)
    assert (refused.status_code, "on their way" in refused.json()["detail"]) == (409, True)


def test_no_job_starts_from_a_deleted_policy(alice: Person, runtime: InMemoryRuntime) -> None:
    user, key = start_policy_job(alice, runtime, "evaluation")
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    relay_all(runtime)
    artifact_id = reread(user).policy_id
    delete(alice, artifact_id)
    refused = alice.api.post("/api/v1/jobs", make_policy_spec("evaluation", str(artifact_id)))
    assert refused.status_code == 422
    (error,) = [error for error in refused.json()["errors"] if error["pointer"] == "/policy/artifact"]
    assert (error["code"], str(artifact_id) in error["detail"]) == ("artifact_deleted", True)


def test_nobody_deletes_what_is_not_theirs_or_without_the_right(
    alice: Person, viewer: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    _, artifact_id = published(alice, runtime)
    assert delete(viewer, artifact_id).status_code == 403
    assert delete(charlie, artifact_id).status_code == 404
    assert row(artifact_id).deleted_at is None


def test_a_runtime_that_was_away_gets_the_deletion_later(alice: Person, runtime: InMemoryRuntime) -> None:
    _, artifact_id = published(alice, runtime)
    delete(alice, artifact_id)
    runtime.down = True
    delete_artifact(str(artifact_id))
    assert row(artifact_id).removed_at is None
    runtime.down = False
    reconcile(runtime=runtime)
    assert runtime.artifacts, "its message is still young"
    with platform_scope():
        Artifact.objects.filter(pk=artifact_id).update(deleted_at=timezone.now() - timedelta(minutes=1))
    assert reconcile(runtime=runtime).removed == 1
    assert runtime.artifacts == {}
    assert reconcile(runtime=runtime).removed == 0


def test_how_long_a_file_is_kept_can_be_said_and_taken_back(alice: Person, runtime: InMemoryRuntime) -> None:
    _, artifact_id = published(alice, runtime)
    path = f"/api/v1/artifacts/{artifact_id}"
    assert alice.api.get(path).json()["keep_until"] is None
    kept = alice.api.patch(path, {"keep_days": 30})
    assert kept.status_code == 200
    left = row(artifact_id).keep_until - timezone.now()
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30)
    assert alice.api.patch(path, {"keep_days": None}).json()["keep_until"] is None
    assert [act.after["keep_until"] is None for act in acts("artifact.retention_set")] == [False, True]
    for body in ({}, {"keep_days": 0}, {"keep_days": 3651}, {"keep_days": 1.5}, {"keep_days": 1, "name": "x"}):
        assert alice.api.patch(path, body).status_code == 422, body
    delete(alice, artifact_id)
    assert alice.api.patch(path, {"keep_days": 1}).status_code == 410


def test_what_is_kept_long_enough_is_deleted_by_the_platform_and_that_is_on_record(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    (_, over), (_, kept) = published(alice, runtime), published(alice, runtime)
    with platform_scope():
        Artifact.objects.filter(pk=over).update(keep_until=timezone.now() - timedelta(seconds=1))
        Artifact.objects.filter(pk=kept).update(keep_until=timezone.now() + timedelta(hours=1))
    before = used(alice)
    assert artifacts_expire() == 1
    assert (row(over).deleted_at is None, row(kept).deleted_at) == (False, None)
    assert used(alice) == before - row(over).size_bytes
    (act,) = acts("artifact.deleted")
    assert (act.actor_kind, act.reason) == ("system", "its retention is over")
    assert artifacts_expire() == 0


def test_retention_waits_for_a_job_that_starts_from_the_file(alice: Person, runtime: InMemoryRuntime) -> None:
    user, _ = start_policy_job(alice, runtime, "evaluation")
    with platform_scope():
        artifact_id = reread(user).policy_id
        Artifact.objects.filter(pk=artifact_id).update(keep_until=timezone.now() - timedelta(seconds=1))
    assert artifacts_expire() == 0
    assert row(artifact_id).deleted_at is None


def test_checkpoints_go_a_day_after_their_attempt_has_ended_and_not_before(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, _ = published(alice, runtime)
    reconcile(runtime=runtime)
    assert runtime.checkpoints
    with platform_scope():
        JobAttempt.objects.filter(job=job).update(finished_at=timezone.now() - CHECKPOINTS_KEPT)
    assert reconcile(runtime=runtime).removed == 1
    assert runtime.checkpoints == {}
    assert reconcile(runtime=runtime).removed == 0


def test_features_of_deleted_datasets_go_with_the_next_sweep_and_all_others_stay(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    deleted, kept = str(uuid4()), [str(make_version(person).pk) for person in (alice, charlie)]
    runtime.features = dict.fromkeys([deleted, *kept, "not-of-this-platform"], 1000)
    assert reconcile(runtime=runtime).removed == 1
    assert list(runtime.features) == [*kept, "not-of-this-platform"]
    assert reconcile(runtime=runtime).removed == 0


def test_features_that_could_not_be_deleted_are_tried_again(
    runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.features = {str(uuid4()): 1000}

    def refuse(version_id: str) -> int:
        raise RuntimeRefused(status=409, code="dataset_in_use", message=version_id)

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "features_delete", refuse)
        assert reconcile(runtime=runtime).removed == 0
    assert runtime.features
    assert reconcile(runtime=runtime).removed == 1
    assert runtime.features == {}
