"""The Python client describes, finds and acts on jobs as the server understands it."""

import pytest

from joynexus_client import Client, Conflict, Stale
from tests.jobs.test_client import through_django
from tests.support.jobs import make_job
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(bob: Person) -> Client:
    return Client("http://server", bob.key, transport=through_django(), sleep=lambda seconds: None)


def test_a_job_is_tagged_and_noted_and_nobody_is_overwritten(bob: Person, client: Client) -> None:
    job_id = str(make_job(bob, name="push").pk)
    seen = client.jobs.etag(job_id)
    told = client.jobs.describe(job_id, tags=["paper-fig3"], note="**good**", if_match=seen)
    assert (told["name"], told["tags"], told["note"], told["number"]) == ("push", ["paper-fig3"], "**good**", 1)
    with pytest.raises(Stale):
        client.jobs.describe(job_id, name="late", if_match=seen)
    assert client.jobs.describe(job_id, tags=[])["tags"] == []
    with pytest.raises(Conflict) as refused:
        client.jobs.describe(job_id, archived=True)
    assert refused.value.code == "job_live"


def test_jobs_are_found_sorted_and_acted_on_together(bob: Person, client: Client) -> None:
    first, second = (str(make_job(bob, name=name).pk) for name in ("b", "a"))
    assert [row["name"] for row in client.jobs.list(sort="name", limit=1, owner="bob@example.org")] == ["a", "b"]
    assert all(result["done"] for result in client.jobs.bulk("tag", [first, second], tag="sweep"))
    assert {row["id"] for row in client.jobs.list(tag="sweep", head="mlp")} == {first, second}
    client.jobs.cancel(first)
    told = client.jobs.bulk("archive", [first, second])
    assert [result["code"] for result in told] == ["", "job_live"]
    assert [row["id"] for row in client.jobs.list(archived="true")] == [first]
    assert [row["id"] for row in client.jobs.list()] == [second]
