"""Prices and usage over REST."""

import uuid

import pytest

from tenants.billing.models import Meter
from tests.support.factories import moment
from tests.support.story import Person, Story
from tests.support.usage import ingest, set_prices

JOBS = [uuid.UUID(int=1), uuid.UUID(int=2)]


def usage(person: Person, query: str = "") -> list[tuple[str, str, int, str]]:
    answer = person.api.get(f"/api/v1/usage{query}")
    assert answer.status_code == 200, answer.json()
    return [(row["group"], row["meter"], row["quantity"], row["cost"]["amount"]) for row in answer.json()["results"]]


def test_prices_are_strings_of_exact_digits(viewer: Person):
    rows = {row["meter"]: row for row in viewer.api.get("/api/v1/prices").json()["results"]}
    assert rows["train.samples"]["price"] == {"amount": "0.050000000000", "currency": "EUR"}
    assert (rows["train.samples"]["per"], rows["train.compute_us"]["per"]) == (1_000, 3_600_000_000)


def test_usage_is_added_up_by_meter_by_job_and_by_day(alice: Person):
    set_prices()
    ingest(alice.tenant, job_id=JOBS[0], samples=1_000, compute_us=0)
    ingest(alice.tenant, job_id=JOBS[0], samples=1_000, compute_us=0, occurred_at=moment("2026-05-02T00:00:00"))
    ingest(alice.tenant, job_id=JOBS[1], samples=2_000, compute_us=0)
    assert ("train.samples", "train.samples", 4_000, "0.200000000000") in usage(alice)
    by_job = [row for row in usage(alice, "?group_by=job") if row[1] == "train.samples"]
    assert [(row[0], row[2]) for row in by_job] == [(str(JOBS[0]), 2_000), (str(JOBS[1]), 2_000)]
    by_day = [row for row in usage(alice, "?group_by=day") if row[1] == "train.samples"]
    assert [(row[0], row[2]) for row in by_day] == [("2026-05-01", 3_000), ("2026-05-02", 1_000)]
    assert ("train.samples", "train.samples", 2_000, "0.100000000000") in usage(alice, f"?job={JOBS[1]}")


@pytest.mark.parametrize("group_by", ["meter", "job", "day"])
def test_what_is_rated_zero_stays_in_its_row_with_the_reason(alice: Person, group_by: str):
    set_prices()
    ingest(alice.tenant, job_id=JOBS[0], samples=1_000, compute_us=7)
    ingest(alice.tenant, job_id=JOBS[0], samples=300, compute_us=2, billable=False, reason="redone_after_restart")
    ingest(alice.tenant, job_id=JOBS[0], samples=40, compute_us=1, billable=False, reason="step_failed")
    rows = alice.api.get(f"/api/v1/usage?group_by={group_by}").json()["results"]
    assert len(rows) == 2
    (row,) = [row for row in rows if row["meter"] == "train.samples"]
    assert (row["quantity"], row["cost"]["amount"]) == (1_340, "0.050000000000")
    assert row["free"] == [
        {"reason": "redone_after_restart", "quantity": 300},
        {"reason": "step_failed", "quantity": 40},
    ]


def test_the_price_list_has_every_meter(viewer: Person):
    listed = {row["meter"] for row in viewer.api.get("/api/v1/prices").json()["results"]}
    assert listed == set(Meter.values)


def test_usage_of_another_tenants_job_is_as_empty_as_of_a_missing_one(story: Story):
    ingest(story.alice.tenant, job_id=JOBS[0])
    assert usage(story.charlie, f"?job={JOBS[0]}") == usage(story.charlie, f"?job={uuid.uuid4()}") == []


@pytest.mark.parametrize("query", ["?group_by=week", "?job=7", "?tenant=other"])
def test_a_wrong_parameter_is_named(alice: Person, query: str):
    answer = alice.api.get(f"/api/v1/usage{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == query.split("=")[0]
