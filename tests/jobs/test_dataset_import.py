"""A recorded dataset becomes a version of its tenant: once, checked, and whatever is repeated or fails."""

import hashlib
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import DatasetImport
from jobs.runtime_client import ArtifactStream
from jobs.services import dataset_import as imports
from jobs.services.dataset_import import TRIES_MAX, import_run, imports_sweep
from jobs.services.submit import job_submit
from tenants.datasets import storage
from tenants.datasets.models import Dataset
from tenants.datasets.tasks import validate_dataset
from tenants.scope import platform_scope
from tests.support.dataset_imports import ZIP, import_of, pass_time, recorded, told, versions, waiting_messages
from tests.support.factories import DatasetFactory
from tests.support.jobs import make_spec, relay_all
from tests.support.lerobot_v30 import write_v30
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import start_policy_job
from tests.support.service_steps import publish
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_storage(tmp_path: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.JOYNEXUS_DATASET_ROOT = tmp_path
    monkeypatch.setattr("tenants.datasets.services.nudge_validation", lambda version_id: None)


def test_a_published_dataset_asks_for_its_import_with_the_event(alice: Person, runtime: InMemoryRuntime) -> None:
    _, artifact_id = recorded(alice, runtime)
    assert import_of(artifact_id).state == "waiting"
    assert waiting_messages(artifact_id) == 1


def test_it_becomes_a_dataset_of_its_tenant_with_the_jobs_name_and_lineage(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    job, artifact_id = recorded(alice, runtime)
    import_run(artifact_id, runtime=runtime)
    (version,) = versions(job)
    assert (version.dataset.name, version.number, version.state) == ("pushes of our own", 1, "received")
    assert version.tenant == alice.tenant
    assert storage.received_path(version.pk).read_bytes() == ZIP
    assert told(job) == [("info", "The episodes are version 1 of dataset 'pushes of our own'; validation follows.")]
    assert import_of(artifact_id).state == "imported"
    detail = alice.api.get(f"/api/v1/jobs/{job.pk}").json()
    assert detail["recorded"] == [{"version_id": str(version.pk), "name": "pushes of our own", "number": 1}]
    shown = alice.api.get(f"/api/v1/dataset-versions/{version.pk}").json()
    assert shown["recorded_from"] == str(job.pk)
    assert charlie.api.get(f"/api/v1/dataset-versions/{version.pk}").status_code == 404


def test_a_dataset_of_that_name_gets_a_new_version(alice: Person, charlie: Person, runtime: InMemoryRuntime) -> None:
    DatasetFactory(tenant=charlie.tenant, name="pushes of our own")
    first, first_id = recorded(alice, runtime)
    import_run(first_id, runtime=runtime)
    second, second_id = recorded(alice, runtime)
    import_run(second_id, runtime=runtime)
    assert [version.number for job in (first, second) for version in versions(job)] == [1, 2]
    with platform_scope():
        assert Dataset.objects.filter(tenant=alice.tenant, name="pushes of our own").count() == 1


def test_repeats_of_message_and_event_make_one_version(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = recorded(alice, runtime)
    for _ in range(3):
        import_run(artifact_id, runtime=runtime)
    runtime.tell(*(str(job.pk), 1), next(e.body for e in runtime.journal if e.body.type == "artifact"))
    relay_all(runtime)
    pass_time(artifact_id)
    import_run(artifact_id, runtime=runtime)
    assert len(versions(job)) == 1
    assert len(told(job)) == 1


def test_a_deleted_version_does_not_come_back(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = recorded(alice, runtime)
    import_run(artifact_id, runtime=runtime)
    (version,) = versions(job)
    assert alice.api.delete(f"/api/v1/dataset-versions/{version.pk}").status_code == 204
    pass_time(artifact_id)
    import_run(artifact_id, runtime=runtime)
    assert versions(job) == []
    assert imports_sweep() == 0


def test_a_worker_that_comes_back_late_changes_nothing(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, artifact_id = recorded(alice, runtime)
    real = imports._take_in

    def overtaken(row: DatasetImport, upload: Any) -> None:
        monkeypatch.setattr(imports, "_take_in", real)
        pass_time(artifact_id)
        import_run(artifact_id, runtime=runtime)  # the other worker, which does it all
        real(row, upload)

    monkeypatch.setattr(imports, "_take_in", overtaken)
    import_run(artifact_id, runtime=runtime)
    (version,) = versions(job)
    assert storage.received_path(version.pk).read_bytes() == ZIP  # the late one took nothing away
    assert import_of(artifact_id).attempts == 2


def test_altered_bytes_are_refused_told_and_asked_for_again(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = recorded(alice, runtime, sha256=hashlib.sha256(b"other").hexdigest())
    import_run(artifact_id, runtime=runtime)
    assert versions(job) == []
    assert not list(storage.incoming().iterdir())  # nothing is left behind
    ((level, message),) = told(job)
    assert level == "warning"
    assert "published was" in message
    import_run(artifact_id, runtime=runtime)  # too early: it pauses
    assert import_of(artifact_id).attempts == 1
    pass_time(artifact_id)
    assert imports_sweep() == 1
    assert waiting_messages(artifact_id) == 2


def test_after_many_wrong_copies_it_is_given_up_with_the_reason(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = recorded(alice, runtime, sha256=hashlib.sha256(b"other").hexdigest())
    for _ in range(TRIES_MAX + 2):
        import_run(artifact_id, runtime=runtime)
        pass_time(artifact_id)
    row = import_of(artifact_id)
    assert (row.state, row.attempts) == ("failed", TRIES_MAX)
    assert [level for level, _ in told(job)] == ["warning", "error"]  # each reason once
    assert imports_sweep() == 0


def test_a_runtime_that_is_away_is_waited_for_however_long(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = recorded(alice, runtime)
    runtime.down = True
    for _ in range(TRIES_MAX + 2):
        import_run(artifact_id, runtime=runtime)
        pass_time(artifact_id)
    assert versions(job) == []
    runtime.down = False
    import_run(artifact_id, runtime=runtime)
    assert len(versions(job)) == 1
    assert [level for level, _ in told(job)] == ["warning", "info"]


def test_a_copy_that_breaks_off_leaves_nothing_and_is_repeated(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, artifact_id = recorded(alice, runtime)
    whole = runtime.artifact

    def half(artifact_id: str, **part: Any) -> ArtifactStream:
        return ArtifactStream(size_bytes=len(ZIP), chunks=iter([ZIP[:5]]), close=lambda: None)

    monkeypatch.setattr(runtime, "artifact", half)
    import_run(artifact_id, runtime=runtime)
    assert versions(job) == []
    assert not list(storage.incoming().iterdir())
    monkeypatch.setattr(runtime, "artifact", whole)
    pass_time(artifact_id)
    import_run(artifact_id, runtime=runtime)
    assert len(versions(job)) == 1


def test_a_dataset_over_the_limit_is_given_up_at_once(alice: Person, runtime: InMemoryRuntime, settings: Any) -> None:
    settings.JOYNEXUS_UPLOAD_MAX_BYTES = 10
    job, artifact_id = recorded(alice, runtime)
    import_run(artifact_id, runtime=runtime)
    assert import_of(artifact_id).state == "failed"
    ((level, message),) = told(job)
    assert level == "error"
    assert "at most 10 bytes" in message


def test_one_copy_at_a_time_and_the_next_is_asked_for(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first_id = recorded(alice, runtime)
    _, second_id = recorded(charlie, runtime)
    real = imports._take_in

    def meanwhile(row: DatasetImport, upload: Any) -> None:
        import_run(second_id, runtime=runtime)
        assert import_of(second_id).state == "waiting"
        real(row, upload)

    monkeypatch.setattr(imports, "_take_in", meanwhile)
    import_run(first_id, runtime=runtime)
    assert import_of(first_id).state == "imported"
    assert waiting_messages(second_id) == 2


def test_an_import_whose_message_was_lost_is_found_by_the_sweep(alice: Person, runtime: InMemoryRuntime) -> None:
    recorded(alice, runtime)
    assert imports_sweep() == 0  # its own message is young
    with platform_scope():
        DatasetImport.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    assert imports_sweep() == 1


def test_files_of_other_kinds_ask_for_no_import(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_policy_job(alice, runtime, "evaluation")
    publish(runtime, key, "video", b"film", media_type="video/mp4")
    publish(runtime, key, "evaluation", b"{}", media_type="application/json")
    relay_all(runtime)
    with platform_scope():
        assert not DatasetImport.objects.exists()


def test_what_a_policy_played_is_validated_and_can_be_trained_on_at_once(
    alice: Person, runtime: InMemoryRuntime, tmp_path: Any
) -> None:
    folder = write_v30(tmp_path / "recording")
    archive = shutil.make_archive(str(tmp_path / "recorded"), "zip", folder)
    job, artifact_id = recorded(alice, runtime, Path(archive).read_bytes())
    import_run(artifact_id, runtime=runtime)
    (version,) = versions(job)
    validate_dataset(str(version.pk))
    (version,) = versions(job)
    assert (version.state, version.reason) == ("ready", "")
    follower = job_submit(tenant=alice.tenant, actor=alice.actor, spec=make_spec(version))
    assert follower.dataset_version.recorded_from == job.pk
