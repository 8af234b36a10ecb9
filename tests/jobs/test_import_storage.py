"""Recorded episodes take storage like any upload: reserved before they are copied, counted once they are here."""

from typing import Any

import pytest

from jobs.services.dataset_import import TRIES_MAX, import_run
from tenants.datasets import uploads
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.quotas.storage import Stored, storage_of
from tests.support.dataset_imports import import_of, pass_time, recorded, told, versions
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

CONTENT = b"z" * 5000


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch, dataset_root: Any) -> None:
    monkeypatch.setattr("tenants.datasets.services.nudge_validation", lambda version_id: None)


@pytest.fixture
def runtime() -> InMemoryRuntime:
    return InMemoryRuntime()


def limit_free_bytes(person: Person, free_bytes: int) -> None:
    """So much more than is stored now fits."""
    limit = storage_of(person.tenant).used_bytes + free_bytes
    quota_set(by=person.user, tenant=person.tenant, resource=Resource.STORAGE_BYTES, limit=limit)


def test_an_import_is_counted_once_however_often_it_is_asked_for(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = recorded(alice, runtime, CONTENT)
    before = storage_of(alice.tenant).used_bytes
    for _ in range(2):
        import_run(artifact_id, runtime=runtime)
    assert len(versions(job)) == 1
    assert storage_of(alice.tenant) == Stored(used_bytes=before + 5000)


def test_an_import_that_does_not_fit_copies_nothing_waits_and_is_given_up(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, artifact_id = recorded(alice, runtime, CONTENT)
    limit_free_bytes(alice, 4999)
    with monkeypatch.context() as patch:
        patch.setattr(uploads.StagedUpload, "write", lambda *_: pytest.fail("bytes were copied"))
        import_run(artifact_id, runtime=runtime)
        assert import_of(artifact_id).state == "waiting"
        assert any("storage_bytes" in message for _, message in told(job))
        for _ in range(TRIES_MAX - 1):
            pass_time(artifact_id)
            import_run(artifact_id, runtime=runtime)
    assert (import_of(artifact_id).state, versions(job)) == ("failed", [])
    assert storage_of(alice.tenant).reserved_bytes == 0


def test_room_made_meanwhile_lets_the_next_try_in(alice: Person, runtime: InMemoryRuntime) -> None:
    job, artifact_id = recorded(alice, runtime, CONTENT)
    limit_free_bytes(alice, 4999)
    import_run(artifact_id, runtime=runtime)
    limit_free_bytes(alice, 5000)
    pass_time(artifact_id)
    import_run(artifact_id, runtime=runtime)
    assert (import_of(artifact_id).state, len(versions(job))) == ("imported", 1)
    assert storage_of(alice.tenant).reserved_bytes == 0


def test_a_copy_that_breaks_off_gives_its_reservation_back(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, artifact_id = recorded(alice, runtime, CONTENT)
    before = storage_of(alice.tenant)

    def fail(*_: object) -> None:
        assert storage_of(alice.tenant).reserved_bytes == 5000
        raise RuntimeError

    monkeypatch.setattr(uploads.StagedUpload, "finish", fail)
    with pytest.raises(RuntimeError):
        import_run(artifact_id, runtime=runtime)
    assert storage_of(alice.tenant) == before


def test_the_reservation_of_a_killed_worker_is_its_successors(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, artifact_id = recorded(alice, runtime, CONTENT)
    before = storage_of(alice.tenant).used_bytes
    limit_free_bytes(alice, 5000)
    with monkeypatch.context() as patch:  # dies without a word
        patch.setattr(uploads.StagedUpload, "close", lambda _: None)
        patch.setattr("jobs.services.dataset_import._take_in", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            import_run(artifact_id, runtime=runtime)
    assert storage_of(alice.tenant).reserved_bytes == 5000
    pass_time(artifact_id)
    import_run(artifact_id, runtime=runtime)
    assert len(versions(job)) == 1
    assert storage_of(alice.tenant) == Stored(used_bytes=before + 5000)
