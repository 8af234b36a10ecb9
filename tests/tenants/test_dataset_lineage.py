"""Where a version comes from and what was made of it."""

import uuid

from django.db import connection
from django.test.utils import CaptureQueriesContext

from tenants.datasets import lineage
from tenants.datasets.models import DatasetVersion
from tests.support.factories import DatasetFactory, DatasetVersionFactory
from tests.support.story import Person, Story


def child(person: Person, parent: DatasetVersion | None = None, **fields: object) -> DatasetVersion:
    return DatasetVersionFactory(dataset=DatasetFactory(tenant=person.tenant), derived_from=parent, **fields)


def family(person: Person, version: DatasetVersion) -> dict:
    return person.api.get(f"/api/v1/dataset-versions/{version.pk}/lineage").json()


def ids(rows: list[dict]) -> list[str]:
    return [row["id"] for row in rows]


def test_ancestors_come_parent_first_and_descendants_nearest_first(bob: Person):
    job = uuid.uuid4()
    first = child(bob, recorded_from=job)
    second = child(bob, first)
    third = child(bob, second)
    sibling = child(bob, second)
    fourth = child(bob, third)
    child(bob)  # of another family
    answer = family(bob, second)
    assert answer["version"]["id"] == str(second.pk)
    assert ids(answer["ancestors"]) == [str(first.pk)]
    assert answer["ancestors"][0]["recorded_from"] == str(job)
    assert set(ids(answer["descendants"][:2])) == {str(third.pk), str(sibling.pk)}
    assert (ids(answer["descendants"][2:]), answer["truncated"]) == ([str(fourth.pk)], False)
    assert ids(family(bob, fourth)["ancestors"]) == [str(row.pk) for row in (third, second, first)]


def test_a_long_family_is_cut_off_and_says_so(bob: Person, monkeypatch):
    monkeypatch.setattr(lineage, "GENERATIONS_MAX", 3)
    rows = [child(bob)]
    for _ in range(8):
        rows.append(child(bob, rows[-1]))
    middle = family(bob, rows[4])
    assert (len(middle["ancestors"]), len(middle["descendants"]), middle["truncated"]) == (3, 3, True)
    assert family(bob, rows[3])["truncated"]  # five generations below
    monkeypatch.setattr(lineage, "GENERATIONS_MAX", 8)
    assert not family(bob, rows[4])["truncated"]


def test_a_large_family_is_cut_off_and_says_so(bob: Person, monkeypatch):
    monkeypatch.setattr(lineage, "DESCENDANTS_MAX", 5)
    parent = child(bob)
    for _ in range(5):
        child(bob, parent)
    answer = family(bob, parent)
    assert (len(answer["descendants"]), answer["truncated"]) == (5, False)
    child(bob, parent)
    answer = family(bob, parent)
    assert (len(answer["descendants"]), answer["truncated"]) == (5, True)


def test_many_siblings_cost_no_more_queries_than_one(bob: Person):
    parent = child(bob)
    child(bob, parent)
    with CaptureQueriesContext(connection) as few:
        family(bob, parent)
    for _ in range(20):
        child(bob, parent)
    with CaptureQueriesContext(connection) as many:
        family(bob, parent)
    assert len(many) <= len(few)


def test_nobody_else_sees_a_family(story: Story):
    version = child(story.bob)
    assert story.charlie.api.get(f"/api/v1/dataset-versions/{version.pk}/lineage").status_code == 404
