"""The Python client sends large archives in chunks and goes on wherever the connection broke."""

import os
import uuid
from pathlib import Path

import httpx
import pytest

from joynexus_client import Conflict, Invalid, Unreachable
from tenants.datasets import services, storage
from tenants.datasets.models import Upload
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.jobs.test_client import client_of
from tests.support.factories import DatasetFactory, DatasetVersionFactory
from tests.support.story import Person

pytestmark = pytest.mark.django_db

CHUNK = 1000


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch, dataset_root: Path) -> None:
    monkeypatch.setattr(services, "nudge_validation", lambda version_id: None)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "recording.zip"
    path.write_bytes(os.urandom(4500))
    return path


def received(version: dict) -> bytes:
    path = storage.received_path(uuid.UUID(version["id"]))
    assert path is not None
    return path.read_bytes()


def uploads() -> list[str]:
    with platform_scope():
        return list(Upload.objects.order_by("created_at").values_list("state", flat=True))


class Wire:
    """What passed, and a network that breaks where a test says."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.lost_requests: list[int] = []
        self.lost_answers: list[int] = []
        self.is_down = False

    def before(self, request: httpx.Request) -> httpx.Response | None:
        if self.is_down:
            raise httpx.ConnectError("no route")
        if request.method == "PATCH":
            offset = int(request.headers["Upload-Offset"])
            self.offsets.append(offset)
            self._break(self.lost_requests, offset)
        return None

    def after(self, request: httpx.Request) -> httpx.Response | None:
        if request.method == "PATCH":
            self._break(self.lost_answers, int(request.headers["Upload-Offset"]))
        return None

    @staticmethod
    def _break(places: list[int], offset: int) -> None:
        if offset in places:
            places.remove(offset)
            raise httpx.ReadError("connection reset")


@pytest.fixture
def wire() -> Wire:
    return Wire()


def test_a_large_archive_goes_in_chunks_and_tells_its_progress(bob: Person, archive: Path, wire: Wire) -> None:
    progress: list[tuple[int, int]] = []
    version = client_of(bob, before=wire.before).datasets.upload(
        archive, "push", chunk_bytes=CHUNK, on_progress=lambda *figures: progress.append(figures)
    )
    assert (version["name"], version["state"]) == ("push", "received")
    assert received(version) == archive.read_bytes()
    assert wire.offsets == [0, 1000, 2000, 3000, 4000]
    assert progress == [(sent, 4500) for sent in (1000, 2000, 3000, 4000, 4500)]


def test_a_small_one_goes_whole_and_tells_its_end(bob: Person, archive: Path, wire: Wire) -> None:
    progress: list[tuple[int, int]] = []
    version = client_of(bob, before=wire.before).datasets.upload(
        archive, "push", on_progress=lambda *figures: progress.append(figures)
    )
    assert (wire.offsets, uploads(), progress) == ([], [], [(4500, 4500)])
    assert received(version) == archive.read_bytes()


def test_a_request_or_an_answer_that_is_lost_costs_one_repeat(bob: Person, archive: Path, wire: Wire) -> None:
    wire.lost_requests, wire.lost_answers = [1000], [3000]
    client = client_of(bob, before=wire.before, after=wire.after)
    version = client.datasets.upload(archive, "push", chunk_bytes=CHUNK)
    assert received(version) == archive.read_bytes()
    assert wire.offsets == [0, 1000, 1000, 2000, 3000, 3000, 4000]


def test_after_a_long_outage_the_same_call_goes_on_where_it_stopped(bob: Person, archive: Path, wire: Wire) -> None:
    client = client_of(bob, before=wire.before)

    def cut(sent: int, _: int) -> None:
        wire.is_down = sent == 2000

    with pytest.raises(Unreachable):
        client.datasets.upload(archive, "push", chunk_bytes=CHUNK, on_progress=cut)
    wire.is_down, wire.offsets = False, []
    version = client_of(bob, before=wire.before).datasets.upload(archive, "push", chunk_bytes=CHUNK)
    assert wire.offsets == [2000, 3000, 4000]
    assert (received(version), uploads()) == (archive.read_bytes(), ["completed"])


def test_another_archive_or_another_name_is_another_upload(
    bob: Person, archive: Path, tmp_path: Path, wire: Wire
) -> None:
    client = client_of(bob, before=wire.before)

    def cut(sent: int, _: int) -> None:
        wire.is_down = True

    with pytest.raises(Unreachable):
        client.datasets.upload(archive, "push", chunk_bytes=CHUNK, on_progress=cut)
    wire.is_down = False
    other = tmp_path / "other.zip"
    other.write_bytes(os.urandom(4500))
    assert received(client.datasets.upload(other, "push", chunk_bytes=CHUNK)) == other.read_bytes()
    assert received(client.datasets.upload(archive, "pull", chunk_bytes=CHUNK)) == archive.read_bytes()
    assert uploads() == ["receiving", "completed", "completed"]


def test_what_is_declared_and_derived_from_arrives_with_a_large_and_a_small_one(bob: Person, archive: Path) -> None:
    parent = DatasetVersionFactory(dataset=DatasetFactory(tenant=bob.tenant))
    for chunk_bytes in (CHUNK, 10_000):
        version = client_of(bob).datasets.upload(
            archive, "push", {"robot_type": "panda"}, derived_from=str(parent.pk), chunk_bytes=chunk_bytes
        )
        assert version["derived_from"] == str(parent.pk)
        row = client_of(bob).datasets.version(version["id"])
        assert row["declared"] == {"robot_type": "panda"}


def test_refusals_come_with_their_words(bob: Person, archive: Path) -> None:
    quota_set(by=bob.user, tenant=bob.tenant, resource=Resource.STORAGE_BYTES, limit=4000)
    with pytest.raises(Conflict, match="do not fit"):
        client_of(bob).datasets.upload(archive, "push", chunk_bytes=CHUNK)
    with pytest.raises(Invalid, match="derived_from"):
        client_of(bob).datasets.upload(archive, "push", derived_from=str(uuid.uuid4()), chunk_bytes=CHUNK)
