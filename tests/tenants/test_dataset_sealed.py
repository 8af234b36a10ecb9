"""A ready version never changes: the database refuses, whoever sends the statement."""

import uuid

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from tenants.datasets import sealed
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.sealed import SEALED_COLUMNS
from tenants.scope import platform_scope
from tests.support.factories import DatasetFactory, DatasetVersionFactory, TenantFactory
from tests.support.story import Person

NOT_SEALED = {"id", "derived_from_id", "claimed_until", "attempts", "reason"}


@pytest.fixture
def version(alice: Person) -> DatasetVersion:
    dataset = DatasetFactory(tenant=alice.tenant)
    parent = DatasetVersionFactory(dataset=dataset)
    return DatasetVersionFactory(dataset=dataset, derived_from=parent, sealed_at=timezone.now())


def other_value(version: DatasetVersion, column: str) -> object:
    """A valid value that the row does not have."""
    values: dict[str, object] = {
        "tenant_id": TenantFactory().pk,
        "dataset_id": DatasetFactory(tenant=version.tenant).pk,
        "number": version.number + 1,
        "state": VersionState.INVALID,
        "declared": {"robot_type": "other"},
        "report": {"defects": [], "summary": None},
        "summary": {**version.summary, "episodes": 5},
        "size_bytes": version.size_bytes + 1,
        "recorded_from": uuid.uuid4(),
        "created_at": timezone.now(),
        "sealed_at": None,
    }
    return values.get(column, "x" * 64)


def change(version: DatasetVersion, **fields: object) -> None:
    with platform_scope(), transaction.atomic():
        DatasetVersion.objects.filter(pk=version.pk).update(**fields)


def test_every_column_is_sealed_or_named_here():
    columns = {field.column for field in DatasetVersion._meta.concrete_fields}
    assert columns == set(SEALED_COLUMNS) | NOT_SEALED


@pytest.mark.parametrize("column", SEALED_COLUMNS)
def test_no_sealed_column_changes(version: DatasetVersion, column: str):
    with pytest.raises(DatabaseError, match="never changes"):
        change(version, **{column: other_value(version, column)})


def test_not_even_by_raw_sql(version: DatasetVersion):
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE datasets_datasetversion SET fingerprint = 'forged'")
    with platform_scope():
        assert DatasetVersion.objects.get(pk=version.pk).fingerprint == ""


def test_a_parent_may_be_lost_but_never_exchanged(version: DatasetVersion, alice: Person):
    with pytest.raises(DatabaseError, match="never changes"):
        change(version, derived_from=DatasetVersionFactory(dataset=version.dataset))
    assert alice.api.delete(f"/api/v1/dataset-versions/{version.derived_from_id}").status_code == 204
    with platform_scope():
        assert DatasetVersion.objects.get(pk=version.pk).derived_from is None


@pytest.mark.parametrize("state", [VersionState.RECEIVED, VersionState.VALIDATING, VersionState.INVALID])
def test_what_is_not_ready_may_change(alice: Person, state: VersionState):
    row = DatasetVersionFactory(dataset=DatasetFactory(tenant=alice.tenant), state=state)
    change(row, size_bytes=7, state=VersionState.READY)
    with pytest.raises(DatabaseError, match="never changes"):
        change(row, size_bytes=8)


def test_a_planted_violation_is_found(version: DatasetVersion):
    """Without the trigger the statements of these tests do change the row."""
    with connection.schema_editor() if connection.vendor == "postgresql" else _plain_editor() as editor:
        sealed.remove(editor)
    change(version, fingerprint="forged")
    with platform_scope():
        assert DatasetVersion.objects.get(pk=version.pk).fingerprint == "forged"


class _plain_editor:  # noqa: N801
    """SQLite's own editor refuses to start inside the transaction of a test; the statements need none of it."""

    connection = connection

    def __enter__(self) -> "_plain_editor":
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, statement: str, params: object = None) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)
