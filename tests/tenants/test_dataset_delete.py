"""Deleting datasets and versions, and what keeps them."""

import os
from pathlib import Path

import pytest

from tenants.datasets import storage
from tenants.datasets.models import Dataset, DatasetVersion
from tenants.datasets.services import sweep_storage
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, DatasetVersionFactory
from tests.support.jobs import make_job
from tests.support.story import Person


@pytest.fixture
def version(alice: Person, dataset_root: Path) -> DatasetVersion:
    row = DatasetVersionFactory(dataset=DatasetFactory(tenant=alice.tenant))
    storage.stored_path(row.storage_key).mkdir(parents=True)
    return row


def delete_dataset(person: Person, version: DatasetVersion):
    """As a caller does who has seen it."""
    path = f"/api/v1/datasets/{version.dataset_id}"
    return person.api.delete(path, headers={"If-Match": person.api.get(path)["ETag"]})


def left() -> tuple[int, int]:
    with platform_scope():
        return Dataset.objects.count(), DatasetVersion.objects.count()


def test_an_unused_dataset_goes_with_its_versions_and_bytes(
    alice: Person, version: DatasetVersion, django_capture_on_commit_callbacks
):
    DatasetVersionFactory(dataset=version.dataset)
    with django_capture_on_commit_callbacks(execute=True):
        assert delete_dataset(alice, version).status_code == 204
    assert left() == (0, 0)
    assert not storage.stored_path(version.storage_key).exists()
    assert alice.api.get(f"/api/v1/datasets/{version.dataset_id}").status_code == 404


def test_one_version_goes_alone(alice: Person, version: DatasetVersion, django_capture_on_commit_callbacks):
    DatasetVersionFactory(dataset=version.dataset)
    with django_capture_on_commit_callbacks(execute=True):
        assert alice.api.delete(f"/api/v1/dataset-versions/{version.pk}").status_code == 204
    assert left() == (1, 1)
    assert not storage.stored_path(version.storage_key).exists()


def test_what_a_job_was_trained_on_stays(alice: Person, dataset_root: Path, django_capture_on_commit_callbacks):
    job = make_job(alice)
    with platform_scope():
        version = job.dataset_version
    storage.stored_path(version.storage_key).mkdir(parents=True)
    with django_capture_on_commit_callbacks(execute=True):
        one = alice.api.delete(f"/api/v1/dataset-versions/{version.pk}")
        for answer in (delete_dataset(alice, version), one):
            assert str(job.pk) in answer.json()["detail"]
            assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:dataset-in-use")
    assert left() == (1, 1)
    assert storage.stored_path(version.storage_key).exists()


def test_bytes_of_interrupted_uploads_go_after_a_day(version: DatasetVersion):
    abandoned, fresh = storage.incoming() / "upload-old", storage.incoming() / "upload-new"
    waiting = storage.incoming() / f"{version.pk}.zip"
    for path in (abandoned, fresh, waiting):
        path.write_bytes(b"x")
    for path in (abandoned, waiting):
        os.utime(path, (0, 0))
    assert sweep_storage() == 1
    assert sorted(path.name for path in storage.incoming().iterdir()) == sorted([fresh.name, waiting.name])


@pytest.mark.parametrize("key", ["../outside", "/etc", "a/../..", ""])
def test_a_storage_key_never_leaves_the_root(key: str, dataset_root: Path):
    with pytest.raises(ValueError, match="leaves the dataset root"):
        storage.stored_path(key)
