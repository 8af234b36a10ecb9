"""Prices and usage over REST."""

import csv
import io
import uuid
from typing import Any

import pytest
import time_machine
from asgiref.sync import async_to_sync

from tenants.billing.models import NO_JOB, Meter, PricePlan, PriorityFactor
from tenants.billing.usage import api
from tenants.models import Project, Role
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory, make_key, moment
from tests.support.story import Person, Story, api_client
from tests.support.usage import graduated, ingest, put_on_plan, set_price, set_prices, tell, work

JOBS = [uuid.UUID(int=1), uuid.UUID(int=2)]


def usage(person: Person, query: str = "") -> list[tuple[str, str, int, str]]:
    answer = person.api.get(f"/api/v1/usage{query}")
    assert answer.status_code == 200, answer.json()
    return [(row["group"], row["meter"], row["quantity"], row["cost"]["amount"]) for row in answer.json()["results"]]


def content(answer: Any) -> bytes:
    """The bytes of a streamed answer, read as a server reads them."""
    return async_to_sync(_read)(answer)


async def _read(answer: Any) -> bytes:
    return b"".join([part async for part in answer])


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


@pytest.mark.parametrize("group_by", ["meter", "job", "day", "project", "key"])
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


@pytest.mark.parametrize("path", ["/api/v1/usage", "/api/v1/usage/csv"])
@pytest.mark.parametrize(
    "query",
    [
        "?group_by=week",
        "?job=7",
        "?tenant=other",
        "?since=7",
        "?since=2026-02-31",
        "?until=2026-05-01T00:00:00Z",
        "?since=2026-W18-5",
    ],
)
def test_a_wrong_parameter_is_named(alice: Person, path: str, query: str):
    answer = alice.api.get(path + query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == query.split("=")[0]


def test_days_out_of_order_are_refused(alice: Person):
    answer = alice.api.get("/api/v1/usage?since=2026-05-02&until=2026-05-02")
    assert answer.status_code == 422
    assert "until must be after since" in answer.json()["errors"][0]["detail"]


@pytest.fixture
def told(alice: Person) -> dict[str, str]:
    """Four events of Alice's: of two projects, a key and none, over two days. Names to ids."""
    set_prices()
    with platform_scope():
        project = Project.objects.get(tenant=alice.tenant)
        other = ProjectFactory(tenant=alice.tenant, slug="arms")
    key, second_day = alice.key_row, moment("2026-05-02T00:00:00")
    tell(
        work(alice.tenant, samples=1_000, project_id=project.pk),
        work(alice.tenant, samples=2_000, job_id=JOBS[0], project_id=other.pk, key_id=key.pk),
        work(alice.tenant, samples=4_000, job_id=JOBS[1], project_id=other.pk, occurred_at=second_day),
        work(alice.tenant, lines={"storage.byte_hours": 10**9}, job_id=NO_JOB),
    )
    return {"default": str(project.pk), "arms": str(other.pk), "key": str(key.pk)}


def test_usage_is_added_up_by_project_and_by_key_with_their_names(alice: Person, told: dict[str, str]):
    rows = alice.api.get("/api/v1/usage?group_by=project").json()["results"]
    by_project = {(row["group"], row["label"]): (row["quantity"], row["cost"]["amount"]) for row in rows}
    assert by_project == {
        (None, ""): (10**9, "0.000030000000"),
        (told["default"], "default"): (1_000, "0.050000000000"),
        (told["arms"], "arms"): (6_000, "0.300000000000"),
    }
    rows = alice.api.get("/api/v1/usage?group_by=key").json()["results"]
    named = {row["group"]: row["label"] for row in rows}
    assert named == {None: "", told["key"]: f"test ({alice.key_row.prefix})"}


@pytest.mark.parametrize(
    ("query", "samples"),
    [
        ("project={arms}", 6_000),
        ("key={key}", 2_000),
        ("since=2026-05-02", 4_000),
        ("until=2026-05-02", 3_000),
        ("since=2026-05-01&until=2026-05-02&project={arms}", 2_000),
        ("job={unknown}", 0),
        ("project={unknown}", 0),
    ],
)
def test_usage_is_filtered(alice: Person, told: dict[str, str], query: str, samples: int):
    rows = usage(alice, "?" + query.format(**told, unknown=uuid.uuid4()))
    assert sum(row[2] for row in rows if row[1] == "train.samples") == samples


def test_a_key_of_one_project_sees_the_usage_of_that_project_only(alice: Person, told: dict[str, str]):
    with platform_scope():
        project = Project.objects.get(pk=told["arms"])
    api = api_client(make_key(alice.tenant, Role.OWNER, alice.user, project=project)[1])
    for query, samples in (("", 6_000), (f"?project={told['arms']}", 6_000), (f"?project={told['default']}", 0)):
        for path in ("/api/v1/usage", "/api/v1/usage/csv"):
            answer = api.get(path + query)
            assert answer.status_code == 200
            text = content(answer).decode() if path.endswith("csv") else answer.content.decode()
            assert (str(samples) in text) == bool(samples)
            assert "storage" not in text
            assert "1000" not in text.replace("6000", "")


def test_usage_as_a_table_has_the_same_figures(alice: Person, told: dict[str, str]):
    redone = {"job_id": JOBS[1], "project_id": told["arms"], "billable": False, "reason": "step_failed"}
    tell(work(alice.tenant, samples=7, **redone))
    answer = alice.api.get("/api/v1/usage/csv?group_by=project", headers={"Accept": "text/csv"})
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert 'filename="usage-by-project.csv"' in answer["Content-Disposition"]
    table = list(csv.DictReader(io.StringIO(content(answer).decode())))
    shown = alice.api.get("/api/v1/usage?group_by=project").json()["results"]
    assert [(row["group"], row["meter"], row["quantity"], row["cost"]) for row in table] == [
        (row["group"] or "", row["meter"], str(row["quantity"]), row["cost"]["amount"]) for row in shown
    ]
    (free,) = [row for row in table if row["free_quantity"] != "0"]
    assert (free["label"], free["free_quantity"], free["free_reasons"]) == ("arms", "7", "step_failed 7")


def test_more_rows_than_an_answer_holds_are_refused_with_the_way_out(
    alice: Person, told: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(api, "ROWS_MAX", 2)
    answer = alice.api.get("/api/v1/usage?group_by=project")
    assert (answer.status_code, answer.json()["type"].split(":")[-1]) == (422, "too-many-rows")
    assert alice.api.get("/api/v1/usage/csv?group_by=project").status_code == 200


def test_the_price_list_is_that_of_the_tenants_own_plan(alice: Person, charlie: Person):
    start, change = moment("2026-05-01T00:00:00"), moment("2100-01-01T00:00:00")
    own = PricePlan.objects.create(code="academic", name="Academic", version=3)
    set_price("train.samples", "0.03", per=1_000, valid_from=start, plan="academic")
    shape = graduated((1_000, "0.02"), (None, "0.01"))
    set_price("train.samples", "0.02", per=1_000, valid_from=change, plan="academic", **shape)
    PriorityFactor.objects.create(plan=own, priority=9, permille=1500, valid_from=start)
    put_on_plan(alice.tenant, own, since=start)
    put_on_plan(alice.tenant, PricePlan.objects.get(code="standard"), since=change)
    answer = alice.api.get("/api/v1/prices").json()
    assert answer["plan"] == {
        "code": "academic", "name": "Academic", "currency": "EUR", "version": 3, "since": start.isoformat(),
    }  # fmt: skip
    assert [(plan["code"], plan["since"]) for plan in answer["coming_plans"]] == [("standard", change.isoformat())]
    announced, valid = answer["results"]
    assert (announced["state"], announced["valid_until"], announced["shape"]) == ("announced", None, "graduated")
    assert [(tier["up_to"], tier["price"]["amount"]) for tier in announced["tiers"]] == [
        (1_000, "0.02"),
        (None, "0.01"),
    ]
    assert (valid["state"], valid["valid_until"]) == ("in_force", change.isoformat())
    assert [(row["priority"], row["permille"], row["state"]) for row in answer["factors"]] == [(9, 1500, "in_force")]
    others = charlie.api.get("/api/v1/prices").json()
    assert (others["plan"]["code"], others["plan"]["since"], others["coming_plans"]) == ("standard", None, [])


def test_who_has_the_price_list_is_told_so_until_it_changes(alice: Person):
    answer = alice.api.get("/api/v1/prices")
    again = alice.api.get("/api/v1/prices", headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    set_price("train.samples", "9", per=1_000, valid_from=moment("2100-01-01T00:00:00"))
    changed = alice.api.get("/api/v1/prices", headers={"If-None-Match": answer["ETag"]})
    assert changed.status_code == 200
    with time_machine.travel("2100-01-02T00:00:00Z"):  # nothing is written, yet another price is in force
        begun = alice.api.get("/api/v1/prices", headers={"If-None-Match": changed["ETag"]})
    assert begun.status_code == 200
