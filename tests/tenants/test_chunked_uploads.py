"""Uploads in chunks: reserved before the first byte, resumed at the byte that is known, verified before they count."""

import hashlib
import io
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tenants.audit.models import AuditEvent
from tenants.datasets import chunk_file, resumable, services, storage
from tenants.datasets.models import DatasetVersion, Upload
from tenants.datasets.resumable import uploads_sweep
from tenants.datasets.selectors import upload_get
from tenants.datasets.services import sweep_storage
from tenants.datasets.tasks import sweep_transfers
from tenants.errors import ApplicationError
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.quotas.storage import Stored, storage_expected, storage_of
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, DatasetVersionFactory
from tests.support.story import Person, Story

CONTENT = os.urandom(1000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def nudged(monkeypatch, dataset_root) -> list[uuid.UUID]:
    """Versions whose validation was asked for; no worker runs here."""
    asked: list[uuid.UUID] = []
    monkeypatch.setattr(services, "nudge_validation", asked.append)
    return asked


def start(person: Person, **fields: object):
    said = {"name": "push", "size_bytes": len(CONTENT), "sha256": DIGEST, **fields}
    return person.api.post("/api/v1/uploads", said)


def started(person: Person, **fields: object) -> str:
    answer = start(person, **fields)
    assert answer.status_code == 201, answer.json()
    return answer["Location"]


def append(person: Person, path: str, offset: int | str, body: bytes, **headers: str):
    headers = {"Upload-Offset": str(offset), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return person.api.patch(path, body, content_type="application/octet-stream", headers=headers)


def refused(answer) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


def set_limit(person: Person, resource: Resource, limit: int) -> None:
    quota_set(by=person.user, tenant=person.tenant, resource=resource, limit=limit)


def left() -> list[str]:
    return sorted(path.name for path in storage.incoming().iterdir())


def test_chunks_become_a_version_whose_bytes_are_what_was_sent(
    bob: Person, nudged, django_capture_on_commit_callbacks
):
    path = started(bob)
    first = append(bob, path, 0, CONTENT[:600], X_Content_SHA256=hashlib.sha256(CONTENT[:600]).hexdigest())
    assert (first.status_code, first.json()["offset"], first["Upload-Offset"]) == (200, 600, "600")
    assert append(bob, path, 600, CONTENT[600:]).json()["offset"] == 1000
    with django_capture_on_commit_callbacks(execute=True):
        answer = bob.api.post(f"{path}/complete")
    assert answer.status_code == 202, answer.json()
    version = answer.json()
    assert (version["name"], version["number"], version["state"]) == ("push", 1, "received")
    assert storage.received_path(uuid.UUID(version["id"])).read_bytes() == CONTENT
    assert nudged == [uuid.UUID(version["id"])]
    upload = bob.api.get(path).json()
    assert (upload["state"], upload["version"], upload["expires_at"]) == ("completed", version["id"], None)
    assert left() == [f"{version['id']}.zip"]


def test_the_size_is_reserved_at_the_start_and_held_once_it_is_a_version(bob: Person):
    path = started(bob)
    assert storage_of(bob.tenant) == Stored(reserved_bytes=1000)
    append(bob, path, 0, CONTENT)
    bob.api.post(f"{path}/complete")
    assert storage_of(bob.tenant) == storage_expected(bob.tenant) == Stored(used_bytes=1000)


def test_an_upload_that_does_not_fit_is_refused_before_a_byte_is_sent(bob: Person):
    set_limit(bob, Resource.STORAGE_BYTES, 1500)
    started(bob)
    answer = start(bob)
    assert refused(answer) == (409, "quota-exceeded")
    assert (answer.json()["resource"], answer.json()["limit"], answer.json()["reserved"]) == (
        "storage_bytes",
        1500,
        1000,
    )
    with platform_scope():
        assert Upload.objects.count() == 1


def test_more_uploads_at_once_than_allowed_are_refused_and_told_why_they_cannot_queue(bob: Person):
    set_limit(bob, Resource.UPLOADS, 1)
    path = started(bob)
    answer = start(bob)
    assert refused(answer) == (409, "quota-exceeded")
    assert (answer.json()["resource"], answer.json()["limit"], answer.json()["used"]) == ("uploads", 1, 1)
    assert "cannot wait in a queue" in answer.json()["detail"]
    bob.api.delete(path)
    started(bob)


def test_a_wrong_offset_is_refused_with_the_right_one_and_changes_nothing(bob: Person):
    path = started(bob)
    append(bob, path, 0, CONTENT[:400])
    for offset in (0, 300, 401):
        answer = append(bob, path, offset, CONTENT[:10])
        assert refused(answer) == (409, "offset-mismatch")
        assert answer.json()["offset"] == 400
    head = bob.api.head(path)
    assert (head.status_code, head["Upload-Offset"], head["Upload-Length"], head.content) == (200, "400", "1000", b"")


@pytest.mark.parametrize("offset", ["", "-1", "x", "1.0", "9" * 30])
def test_an_offset_that_is_none_is_refused_by_name(bob: Person, offset: str):
    answer = append(bob, started(bob), offset, b"x")
    assert refused(answer) == (422, "validation-failed")
    assert answer.json()["errors"][0]["pointer"] == "Upload-Offset"


def test_a_chunk_with_another_digest_is_refused_and_forgotten(bob: Person):
    path = started(bob)
    append(bob, path, 0, CONTENT[:100])
    answer = append(bob, path, 100, b"y" * 200, X_Content_SHA256="0" * 64)
    assert refused(answer) == (422, "digest-mismatch")
    assert bob.api.get(path).json()["offset"] == 100
    append(bob, path, 100, CONTENT[100:])
    assert bob.api.post(f"{path}/complete").status_code == 202


def test_an_empty_chunk_one_beyond_the_end_and_one_beyond_the_limit_are_refused(bob: Person, settings):
    path = started(bob)
    assert refused(append(bob, path, 0, b"")) == (422, "chunk-empty")
    assert refused(append(bob, path, 0, CONTENT + b"x")) == (422, "chunk-beyond-end")
    settings.JOYNEXUS_CHUNK_MAX_BYTES = 100
    answer = append(bob, path, 0, CONTENT[:101])
    assert (refused(answer), answer.json()["limit"]) == ((413, "chunk-too-large"), 100)
    assert bob.api.get(path).json()["offset"] == 0
    assert append(bob, path, 0, CONTENT[:100]).json()["offset"] == 100


def test_only_bytes_as_such_are_a_chunk(bob: Person):
    answer = bob.api.patch(started(bob), {"a": 1}, headers={"Upload-Offset": "0"})
    assert answer.status_code == 415


def test_an_incomplete_upload_is_not_completed_and_told_where_to_go_on(bob: Person):
    path = started(bob)
    append(bob, path, 0, CONTENT[:999])
    answer = bob.api.post(f"{path}/complete")
    assert (refused(answer), answer.json()["offset"]) == ((409, "upload-incomplete"), 999)
    assert bob.api.get(path).json()["state"] == "receiving"


def test_other_content_than_declared_ends_the_upload_and_gives_everything_back(
    bob: Person, django_capture_on_commit_callbacks
):
    path = started(bob, sha256="0" * 64)
    append(bob, path, 0, CONTENT)
    with django_capture_on_commit_callbacks(execute=True):
        answer = bob.api.post(f"{path}/complete")
    assert refused(answer) == (422, "digest-mismatch")
    assert DIGEST in answer.json()["detail"]
    assert (storage_of(bob.tenant), left()) == (Stored(), [])
    upload = bob.api.get(path).json()
    assert (upload["state"], DIGEST in upload["reason"]) == ("aborted", True)
    assert refused(append(bob, path, 0, CONTENT)) == (409, "upload-ended")
    with platform_scope():
        assert not DatasetVersion.objects.exists()


def test_completing_again_gives_the_same_version(bob: Person):
    path = started(bob)
    append(bob, path, 0, CONTENT)
    first = bob.api.post(f"{path}/complete", headers={"Idempotency-Key": "one"}).json()
    assert bob.api.post(f"{path}/complete", headers={"Idempotency-Key": "one"}).json() == first
    assert bob.api.post(f"{path}/complete", headers={"Idempotency-Key": "two"}).json()["id"] == first["id"]
    with platform_scope():
        assert DatasetVersion.objects.count() == 1


def test_an_aborted_upload_gives_back_its_bytes_and_its_reservation(bob: Person, django_capture_on_commit_callbacks):
    path = started(bob)
    append(bob, path, 0, CONTENT[:500])
    with django_capture_on_commit_callbacks(execute=True):
        assert [bob.api.delete(path).status_code for _ in range(2)] == [204, 204]
    assert (storage_of(bob.tenant), left()) == (Stored(), [])
    assert bob.api.get(path).json()["state"] == "aborted"


def test_a_completed_upload_cannot_be_aborted(bob: Person):
    path = started(bob)
    append(bob, path, 0, CONTENT)
    bob.api.post(f"{path}/complete")
    assert refused(bob.api.delete(path)) == (409, "upload-ended")


def test_an_upload_that_stood_still_for_a_day_is_ended_and_told_in_the_audit_log(
    bob: Person, django_capture_on_commit_callbacks
):
    stale, fresh = started(bob), started(bob)
    append(bob, stale, 0, CONTENT[:5])
    with platform_scope():
        Upload.objects.filter(pk=stale.rpartition("/")[2]).update(touched_at=timezone.now() - timedelta(hours=25))
    with django_capture_on_commit_callbacks(execute=True):
        assert [uploads_sweep(), sweep_transfers()] == [1, 0]
    assert [bob.api.get(path).json()["state"] for path in (stale, fresh)] == ["aborted", "receiving"]
    assert storage_of(bob.tenant) == Stored(reserved_bytes=1000)
    with platform_scope():
        told = AuditEvent.objects.get(verb="upload.aborted", tenant=bob.tenant)
    assert (told.actor_kind, "24 hours" in told.reason) == ("system", True)


def test_the_bytes_of_an_open_upload_survive_the_sweep_of_abandoned_files(bob: Person):
    path = started(bob)
    append(bob, path, 0, CONTENT[:5])
    (name,) = left()
    os.utime(storage.incoming() / name, (0, 0))
    assert (sweep_storage(), left()) == (0, [name])


def test_while_one_request_writes_another_is_refused(bob: Person):
    path = started(bob)
    with platform_scope():
        upload = Upload.objects.get()
    with chunk_file.locked_file(upload):
        assert refused(append(bob, path, 0, CONTENT)) == (409, "upload-busy")
        assert refused(bob.api.post(f"{path}/complete")) == (409, "upload-busy")
    assert append(bob, path, 0, CONTENT).status_code == 200


def test_bytes_lost_on_the_server_are_noticed(bob: Person):
    path = started(bob)
    append(bob, path, 0, CONTENT[:500])
    (name,) = left()
    os.truncate(storage.incoming() / name, 100)
    assert refused(append(bob, path, 500, CONTENT[500:])) == (409, "upload-damaged")


def test_a_full_disk_refuses_the_chunk_and_keeps_the_upload(bob: Person, monkeypatch):
    path = started(bob)
    append(bob, path, 0, CONTENT[:500])

    def full(file, piece):
        file.write(piece[:7])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(chunk_file, "_write_all", full)
        assert refused(append(bob, path, 500, CONTENT[500:])) == (507, "storage-full")
    append(bob, path, 500, CONTENT[500:])
    assert bob.api.post(f"{path}/complete").status_code == 202


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": "x" * 201}, "/name"),
        ({"size_bytes": 0}, "/size_bytes"),
        ({"size_bytes": "many"}, "/size_bytes"),
        ({"size_bytes": 2**40}, "/size_bytes"),
        ({"sha256": "abc"}, "/sha256"),
        ({"declared": {"representation": "sideways"}}, "/declared/representation"),
        ({"derived_from": "x"}, "/derived_from"),
        ({"derived_from": str(uuid.uuid4())}, "/derived_from"),
        ({"surprise": 1}, "/surprise"),
    ],
)
def test_every_bad_field_is_refused_by_name(bob: Person, fields: dict[str, object], pointer: str):
    answer = start(bob, **fields)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert storage_of(bob.tenant) == Stored()


def test_a_foreign_version_is_no_ancestor(story: Story):
    foreign = DatasetVersionFactory(dataset=DatasetFactory(tenant=story.charlie.tenant))
    assert start(story.bob, derived_from=str(foreign.pk)).status_code == 422


def test_what_was_declared_and_derived_from_arrives_with_the_version(bob: Person):
    parent = DatasetVersionFactory(dataset=DatasetFactory(tenant=bob.tenant))
    path = started(bob, derived_from=str(parent.pk), declared={"robot_type": "panda"})
    append(bob, path, 0, CONTENT)
    version = bob.api.post(f"{path}/complete").json()
    assert (version["derived_from"], version["declared"]) == (str(parent.pk), {"robot_type": "panda"})


def test_a_completion_that_fails_at_the_database_loses_no_byte_and_may_be_repeated(
    bob: Person, monkeypatch, django_capture_on_commit_callbacks
):
    path = started(bob)
    append(bob, path, 0, CONTENT)

    def fail(*_, **__):
        raise RuntimeError("the database went away")

    with monkeypatch.context() as patch:
        patch.setattr(services, "audit", fail)
        assert bob.api.post(f"{path}/complete").status_code == 500
    assert (bob.api.get(path).json()["state"], storage_of(bob.tenant)) == ("receiving", Stored(reserved_bytes=1000))
    with django_capture_on_commit_callbacks(execute=True):
        version = bob.api.post(f"{path}/complete").json()
    assert storage.received_path(uuid.UUID(version["id"])).read_bytes() == CONTENT
    assert left() == [f"{version['id']}.zip"]


def all_at_once(count: int, work: Callable[[], object]) -> list[object]:
    """What ``count`` threads, each with a connection of its own, got or were refused with."""
    outcomes: list[object] = []
    ready = threading.Barrier(count)

    def run() -> None:
        ready.wait()
        try:
            outcomes.append(work())
        except ApplicationError as refusal:
            outcomes.append(refusal.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.django_db(transaction=True)
def test_of_eight_uploads_started_at_once_only_as_many_as_allowed_are_admitted(alice: Person):
    set_limit(alice, Resource.UPLOADS, 1)
    fields = {"tenant": alice.tenant, "actor": alice.actor, "name": "push", "size_bytes": 10, "sha256": DIGEST}
    outcomes = all_at_once(8, lambda: resumable.upload_start(**fields) and "admitted")
    assert Counter(outcomes) == {"admitted": 1, "quota_exceeded": 7}
    assert storage_of(alice.tenant) == Stored(reserved_bytes=10)


@pytest.mark.django_db(transaction=True)
def test_four_completions_at_once_make_one_version(alice: Person):
    who = {"tenant": alice.tenant, "actor": alice.actor}
    upload = resumable.upload_start(**who, name="push", size_bytes=len(CONTENT), sha256=DIGEST)
    resumable.upload_append(tenant=alice.tenant, upload_id=upload.pk, offset=0, source=io.BytesIO(CONTENT))
    outcomes = all_at_once(4, lambda: resumable.upload_complete(**who, upload_id=upload.pk).pk)
    assert (len(outcomes), len(set(outcomes))) == (4, 1)
    with platform_scope():
        assert DatasetVersion.objects.get().pk == outcomes[0]
    assert storage_of(alice.tenant) == storage_expected(alice.tenant) == Stored(used_bytes=1000)


class SlowSource:
    """Bytes that come in small pieces, so that writers have every chance to meet."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def read(self, size: int, /) -> bytes:
        time.sleep(0.0005)
        return self._content.read(min(size, 1024))


@pytest.mark.django_db(transaction=True)
def test_six_writers_at_once_never_interleave(alice: Person):
    content = os.urandom(200_000)
    upload = resumable.upload_start(
        tenant=alice.tenant,
        actor=alice.actor,
        name="push",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    refusals: Counter[str] = Counter()

    def write() -> None:
        offset = 0
        try:
            while offset < len(content):
                source = SlowSource(content[offset : offset + 20_000])
                try:
                    resumable.upload_append(tenant=alice.tenant, upload_id=upload.pk, offset=offset, source=source)
                except ApplicationError as refusal:
                    refusals[refusal.code] += 1
                    time.sleep(0.001)
                offset = upload_get(alice.tenant, upload.pk).received_bytes
        finally:
            connection.close()

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.chunks_path(upload.pk).read_bytes() == content
    assert set(refusals) <= {"upload_busy", "offset_mismatch"}
    assert refusals["upload_busy"] > 0  # they did meet
    resumable.upload_verify(tenant=alice.tenant, actor=alice.actor, upload_id=upload.pk)
