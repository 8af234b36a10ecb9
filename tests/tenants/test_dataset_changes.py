"""Renaming datasets, keeping versions for a while, and what the audit log tells of it."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from tenants.audit.models import AuditEvent
from tenants.datasets import services, storage
from tenants.datasets.models import Dataset, DatasetVersion, VersionState
from tenants.datasets.removal import retention_sweep
from tenants.datasets.services import dataset_import
from tenants.datasets.tasks import apply_retention
from tenants.quotas.storage import storage_add, storage_of
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, DatasetVersionFactory
from tests.support.jobs import make_job
from tests.support.story import Person, Story


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch, dataset_root) -> None:
    monkeypatch.setattr(services, "nudge_validation", lambda version_id: None)


def path_of(dataset: Dataset) -> str:
    return f"/api/v1/datasets/{dataset.pk}"


def tag(person: Person, dataset: Dataset) -> str:
    return person.api.get(path_of(dataset))["ETag"]


def change(person: Person, dataset: Dataset, body: dict, match: str | None = None):
    return person.api.patch(path_of(dataset), body, headers={"If-Match": match or tag(person, dataset)})


def acts(person: Person) -> list[tuple[str, str]]:
    with platform_scope():
        rows = AuditEvent.objects.filter(tenant=person.tenant, verb__startswith="dataset").order_by("pk")
        return [(row.verb, row.actor_kind) for row in rows]


@pytest.fixture
def dataset(bob: Person) -> Dataset:
    return DatasetFactory(tenant=bob.tenant, name="push")


def test_a_dataset_is_renamed_and_its_tag_changes(bob: Person, dataset: Dataset):
    before = tag(bob, dataset)
    answer = change(bob, dataset, {"name": "pull"}, before)
    assert (answer.status_code, answer.json()["name"]) == (200, "pull")
    assert answer["ETag"] == tag(bob, dataset) != before
    with platform_scope():
        act = AuditEvent.objects.get(verb="dataset.changed")
    assert (act.before, act.after, act.actor_kind) == ({"name": "push"}, {"name": "pull"}, "key")


def test_whoever_has_not_seen_the_newest_changes_and_deletes_nothing(bob: Person, dataset: Dataset):
    old = tag(bob, dataset)
    change(bob, dataset, {"keep_days": 7}, old)
    assert change(bob, dataset, {"name": "pull"}, old).status_code == 412
    assert bob.api.delete(path_of(dataset), headers={"If-Match": old}).status_code == 412
    assert bob.api.patch(path_of(dataset), {"name": "pull"}).status_code == 428
    assert bob.api.delete(path_of(dataset)).status_code == 428
    assert bob.api.get(path_of(dataset)).json()["name"] == "push"


def test_a_new_version_changes_the_tag_so_nobody_deletes_what_they_have_not_seen(
    bob: Person, dataset: Dataset, tmp_path: Path
):
    old = tag(bob, dataset)
    (tmp_path / "recording").mkdir()
    dataset_import(tenant=bob.tenant, actor=bob.actor, name="push", source=tmp_path / "recording")
    assert bob.api.delete(path_of(dataset), headers={"If-Match": old}).status_code == 412


def test_the_number_of_a_deleted_version_is_never_given_again(bob: Person, tmp_path: Path):
    (tmp_path / "recording").mkdir()

    def imported() -> DatasetVersion:
        return dataset_import(tenant=bob.tenant, actor=bob.actor, name="push", source=tmp_path / "recording")

    imported()
    assert bob.api.delete(f"/api/v1/dataset-versions/{imported().pk}").status_code == 204
    assert imported().number == 3


def test_what_is_left_out_stays_and_null_means_for_ever(bob: Person, dataset: Dataset):
    change(bob, dataset, {"keep_days": 7})
    assert change(bob, dataset, {"name": "pull"}).json()["keep_days"] == 7
    assert change(bob, dataset, {"keep_days": None}).json() == bob.api.get(path_of(dataset)).json()
    assert bob.api.get(path_of(dataset)).json()["keep_days"] is None


def test_a_change_to_what_it_is_already_changes_nothing(bob: Person, dataset: Dataset):
    before = tag(bob, dataset)
    assert change(bob, dataset, {"name": "push"})["ETag"] == before
    assert acts(bob) == []


def test_another_datasets_name_is_refused(bob: Person, dataset: Dataset):
    DatasetFactory(tenant=bob.tenant, name="pull")
    answer = change(bob, dataset, {"name": "pull"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (409, "/name")


def test_another_tenants_name_is_free(story: Story, dataset: Dataset):
    DatasetFactory(tenant=story.charlie.tenant, name="pull")
    assert change(story.bob, dataset, {"name": "pull"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": None}, "/name"),
        ({"name": "x" * 201}, "/name"),
        ({"keep_days": 0}, "/keep_days"),
        ({"keep_days": 36_501}, "/keep_days"),
        ({"keep_days": "soon"}, "/keep_days"),
        ({"version": 3}, "/version"),
    ],
)
def test_every_bad_field_is_refused_by_name(bob: Person, dataset: Dataset, body: dict, pointer: str):
    answer = change(bob, dataset, body)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, [pointer])


def sealed(dataset: Dataset, *, days_ago: float, **fields: object) -> DatasetVersion:
    """A ready version of 100 bytes."""
    row = DatasetVersionFactory(
        dataset=dataset, sealed_at=timezone.now() - timedelta(days=days_ago), size_bytes=100, **fields
    )
    storage.stored_path(row.storage_key).mkdir(parents=True)
    storage_add(row.tenant, 100)
    return row


def left() -> set[object]:
    with platform_scope():
        return set(DatasetVersion.objects.values_list("pk", flat=True))


def test_versions_go_when_their_days_are_over_with_bytes_and_a_word_to_the_tenant(
    bob: Person, dataset: Dataset, django_capture_on_commit_callbacks
):
    change(bob, dataset, {"keep_days": 7})
    old, young = sealed(dataset, days_ago=7.1), sealed(dataset, days_ago=6.9)
    other = sealed(DatasetFactory(tenant=bob.tenant), days_ago=1000)  # of a dataset that is kept for ever
    with django_capture_on_commit_callbacks(execute=True):
        assert [retention_sweep(), apply_retention()] == [1, 0]
    assert left() == {young.pk, other.pk}
    assert not storage.stored_path(old.storage_key).exists()
    assert storage_of(bob.tenant).used_bytes == 200
    with platform_scope():
        act = AuditEvent.objects.get(verb="dataset_version.deleted")
    assert (act.tenant_id, act.actor_kind, act.object_id) == (bob.tenant.pk, "system", str(old.pk))
    assert "kept for 7 days" in act.reason


def test_each_dataset_has_its_own_number_of_days(bob: Person):
    short, long = (DatasetFactory(tenant=bob.tenant, keep_days=days) for days in (1, 30))
    sealed(short, days_ago=5)
    kept = sealed(long, days_ago=5)
    assert retention_sweep() == 1
    assert left() == {kept.pk}


def test_what_a_job_uses_and_what_is_not_sealed_stays(alice: Person, dataset_root: Path):
    job = make_job(alice)
    with platform_scope():
        used = job.dataset_version
        Dataset.objects.filter(pk=used.dataset_id).update(keep_days=1)
        dataset = Dataset.objects.get(pk=used.dataset_id)
    in_use = sealed(dataset, days_ago=9)
    with platform_scope():
        type(job).objects.filter(pk=job.pk).update(dataset_version=in_use)
    waiting = DatasetVersionFactory(dataset=dataset, state=VersionState.RECEIVED)
    assert retention_sweep() == 0
    assert {in_use.pk, waiting.pk} <= left()
    assert ("dataset_version.deleted", "system") not in acts(alice)


def test_creation_and_deletion_are_in_the_audit_log(bob: Person, tmp_path: Path):
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "a").write_bytes(b"abc")
    version = dataset_import(tenant=bob.tenant, actor=bob.actor, name="push", source=tmp_path / "recording")
    bob.api.delete(f"/api/v1/dataset-versions/{version.pk}")
    with platform_scope():
        dataset = Dataset.objects.get()
    bob.api.delete(path_of(dataset), headers={"If-Match": tag(bob, dataset)})
    assert acts(bob) == [
        ("dataset.created", "user"),
        ("dataset_version.created", "user"),
        ("dataset_version.deleted", "key"),
        ("dataset.deleted", "key"),
    ]
    with platform_scope():
        act = AuditEvent.objects.get(verb="dataset_version.created")
    assert (act.object_name, act.after) == ("push, version 1", {"number": 1, "size_bytes": 3})
