"""The Python client reads usage and prices as the API tells them."""

import csv
from pathlib import Path

import pytest

from joynexus_client import Client
from joynexus_client.errors import Invalid
from tenants.billing.models import NO_JOB
from tenants.models import Project
from tenants.scope import platform_scope
from tests.jobs.test_client import through_django
from tests.support.factories import moment
from tests.support.story import Person
from tests.support.usage import graduated, set_price, tell, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(alice: Person) -> Client:
    """Alice has used samples in her project on two days, and storage."""
    with platform_scope():
        project = Project.objects.get(tenant=alice.tenant)
    tell(
        work(alice.tenant, samples=1_000, project_id=project.pk),
        work(alice.tenant, samples=2_000, project_id=project.pk, occurred_at=moment("2026-05-02T00:00:00")),
        work(alice.tenant, lines={"storage.byte_hours": 10**9}, job_id=NO_JOB),
    )
    return Client("http://localhost", alice.key, transport=through_django())


def test_usage_is_grouped_and_filtered(client: Client) -> None:
    by_project = {row["label"]: row["quantity"] for row in client.usage(group_by="project")}
    assert by_project == {"default": 3_000, "": 10**9}
    (row,) = client.usage(since="2026-05-02", until="2026-05-03")
    assert (row["meter"], row["quantity"], row["cost"]["amount"]) == ("train.samples", 2_000, "0.100000000000")
    with pytest.raises(Invalid, match="since"):
        client.usage(since="yesterday")


def test_usage_is_saved_as_a_table(client: Client, tmp_path: Path) -> None:
    saved = client.usage_csv(tmp_path / "usage.csv", group_by="day", until="2026-05-02")
    rows = list(csv.DictReader(saved.read_text().splitlines()))
    assert [(row["group"], row["meter"], row["quantity"]) for row in rows] == [
        ("2026-05-01", "storage.byte_hours", "1000000000"),
        ("2026-05-01", "train.samples", "1000"),
    ]


def test_prices_say_which_is_in_force(client: Client) -> None:
    shape = graduated((1_000, "0.04"), (None, "0.03"))
    set_price("train.samples", "0.04", per=1_000, valid_from=moment("2100-01-01T00:00:00"), **shape)
    listed = client.price_list()
    assert (listed["plan"]["code"], listed["factors"], listed["coming_plans"]) == ("standard", [], [])
    samples = [price for price in client.prices() if price["meter"] == "train.samples"]
    assert [price["state"] for price in samples] == ["announced", "in_force"]
    assert [tier["up_to"] for tier in samples[0]["tiers"]] == [1_000, None]
