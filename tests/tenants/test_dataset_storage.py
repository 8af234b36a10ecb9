"""What datasets take of a tenant's storage, over every way in and out."""

import io
import os
import uuid
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from gpu_runtime.protocol.schema import DatasetSummary, ValidationReport
from tenants.datasets import claims, services, storage
from tenants.datasets.models import DatasetVersion
from tenants.datasets.services import dataset_import
from tenants.errors import ApplicationError
from tenants.quotas.leases import Lease, lease_hold, lease_release, lease_settle, leases_sweep
from tenants.quotas.models import Resource, StorageLease
from tenants.quotas.services import quota_set
from tenants.quotas.storage import Stored, storage_expected, storage_of
from tenants.scope import platform_scope
from tests.support.factories import make_summary
from tests.support.story import Person

GOOD = ValidationReport(defects=(), summary=DatasetSummary.model_validate(make_summary() | {"size_bytes": 5000}))


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch, dataset_root) -> None:
    monkeypatch.setattr(services, "nudge_validation", lambda version_id: None)


def archive(size: int = 1000) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("data", os.urandom(size))
    return buffer.getvalue()


def upload(person: Person, body: bytes):
    return person.api.post("/api/v1/datasets?name=push", body, content_type="application/zip")


def uploaded(person: Person, body: bytes) -> DatasetVersion:
    answer = upload(person, body)
    assert answer.status_code == 202, answer.json()
    with platform_scope():
        return DatasetVersion.objects.select_related("tenant").get(pk=answer.json()["id"])


def set_limit(person: Person, limit: int) -> None:
    quota_set(by=person.user, tenant=person.tenant, resource=Resource.STORAGE_BYTES, limit=limit)


def holds(person: Person) -> int:
    """Bytes used; nothing is reserved, and the rows say the same."""
    stored = storage_of(person.tenant)
    assert stored == storage_expected(person.tenant)
    assert stored.reserved_bytes == 0
    return stored.used_bytes


def test_a_sealed_version_takes_what_its_files_take_and_nothing_once_it_is_deleted(bob: Person):
    body = archive()
    version = uploaded(bob, body)
    assert holds(bob) == len(body)
    claimed = claims.version_claim(version.pk)
    assert claims.version_seal(version=claimed, report=GOOD)
    assert holds(bob) == 5000
    assert bob.api.get(f"/api/v1/dataset-versions/{version.pk}").json()["size_bytes"] == 5000
    assert bob.api.delete(f"/api/v1/dataset-versions/{version.pk}").status_code == 204
    assert holds(bob) == 0


def test_a_refused_version_takes_nothing_and_its_deletion_gives_back_nothing_more(bob: Person, caplog):
    other = archive(50)
    uploaded(bob, other)
    version = uploaded(bob, archive())
    assert claims.version_refuse(version=claims.version_claim(version.pk), reason="bad", report=None)
    assert holds(bob) == len(other)
    bob.api.delete(f"/api/v1/dataset-versions/{version.pk}")
    assert holds(bob) == len(other)
    assert "below zero" not in caplog.text


def test_a_version_deleted_while_it_is_read_is_given_back_once(bob: Person, caplog):
    version = uploaded(bob, archive())
    claimed = claims.version_claim(version.pk)
    bob.api.delete(f"/api/v1/dataset-versions/{version.pk}")
    assert not claims.version_seal(version=claimed, report=GOOD)
    assert holds(bob) == 0
    assert "below zero" not in caplog.text


@pytest.mark.parametrize("form", [False, True])
def test_an_upload_that_does_not_fit_is_refused_by_its_length_before_a_byte_is_stored(
    bob: Person, form: bool, dataset_root: Path, monkeypatch
):
    set_limit(bob, 500)
    monkeypatch.setattr("tenants.datasets.uploads.StagedUpload.write", lambda *_: pytest.fail("a byte was stored"))
    if form:
        body = {"name": "push", "file": SimpleUploadedFile("a.zip", archive())}
        answer = bob.api.post("/api/v1/datasets", body, format="multipart")
    else:
        answer = upload(bob, archive())
    assert (answer.status_code, answer.json()["resource"]) == (409, "storage_bytes")
    assert holds(bob) == 0
    assert [path for path in dataset_root.rglob("*") if path.is_file()] == []


def test_without_a_length_the_reservation_grows_with_the_bytes_and_ends_at_the_limit(bob: Person, monkeypatch):
    set_limit(bob, 3 * 2**20)
    monkeypatch.setattr("tenants.datasets.uploads._announced_bytes", lambda request: 0)
    assert upload(bob, archive(2 * 2**20)).status_code == 202
    answer = upload(bob, archive(2 * 2**20))
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:quota-exceeded")
    assert 2 * 2**20 < holds(bob) < 3 * 2**20


@pytest.mark.parametrize("query", ["", "?name=push&declared=x", "?name=push&derived_from=7"])
def test_a_refused_request_gives_its_reservation_back(bob: Person, query: str):
    assert bob.api.post(f"/api/v1/datasets{query}", archive(), content_type="application/zip").status_code == 422
    assert holds(bob) == 0


def test_a_folder_of_the_server_that_does_not_fit_is_refused_before_it_is_copied(bob: Person, tmp_path: Path):
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "data").write_bytes(bytes(600))
    set_limit(bob, 500)
    with pytest.raises(ApplicationError, match="do not fit"):
        dataset_import(tenant=bob.tenant, actor=None, name="push", source=tmp_path / "recording")
    assert holds(bob) == 0
    assert list(storage.incoming().iterdir()) == []


def test_an_import_that_fails_at_the_database_gives_everything_back(bob: Person, tmp_path: Path, monkeypatch):
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "data").write_bytes(bytes(600))

    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(services, "audit", fail)
    with pytest.raises(RuntimeError):
        dataset_import(tenant=bob.tenant, actor=None, name="push", source=tmp_path / "recording")
    assert holds(bob) == 0


def test_the_reservation_of_a_killed_process_expires(bob: Person):
    dead, alive = (Lease(tenant=bob.tenant, id=uuid.uuid4()) for _ in range(2))
    for lease in (dead, alive):
        lease_hold(lease, 100)
    with platform_scope():
        StorageLease.objects.filter(pk=dead.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert [leases_sweep(), leases_sweep()] == [1, 0]
    assert storage_of(bob.tenant) == storage_expected(bob.tenant) == Stored(reserved_bytes=100)


def test_a_lease_that_expired_too_early_is_reserved_anew_when_it_is_settled_or_refused(bob: Person):
    set_limit(bob, 150)
    lease = Lease(tenant=bob.tenant, id=uuid.uuid4())
    lease_hold(lease, 100)
    lease_release(lease)
    lease_settle(lease, used=100)
    assert storage_of(bob.tenant) == Stored(used_bytes=100)
    late = Lease(tenant=bob.tenant, id=uuid.uuid4())
    with pytest.raises(ApplicationError, match="50 are free"):
        lease_settle(late, used=100)
    assert storage_of(bob.tenant) == Stored(used_bytes=100)


def test_a_lease_grows_never_shrinks_and_is_released_once(bob: Person):
    lease = Lease(tenant=bob.tenant, id=uuid.uuid4())
    for size in (10, 30, 20):
        lease_hold(lease, size)
    assert storage_of(bob.tenant) == Stored(reserved_bytes=30)
    lease_release(lease)
    lease_release(lease)
    assert holds(bob) == 0
