"""Published files over the API: lists by kind, media types, parts for players, reports, tables."""

import csv
import hashlib
import io
import json
from typing import Any

import pytest

from gpu_runtime.protocol.messages import MetricsRecorded
from jobs.models import Artifact
from tenants.scope import platform_scope
from tests.support.downloads import content_of
from tests.support.jobs import relay_all
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_spec, start_policy_job
from tests.support.service_steps import publish
from tests.support.story import Person

pytestmark = pytest.mark.django_db

FILM = bytes(range(256)) * 40
RATE = {"successes": 1, "episodes": 2, "rate": 0.5, "low": 0.09, "high": 0.91}


def episode(seed: int, cause: str, **more: Any) -> dict[str, Any]:
    solved = cause == "success"
    return {
        "seed": seed, "initial_state": f"s{seed}", "cause": cause, "success_once": solved, "success_at_end": solved,
        "steps": 20, "return": -0.5, "predict": None, "error": None, "video": None, "video_error": None,
    } | more  # fmt: skip


REPORT = {
    "tasks": [
        {
            "protocol": {"environment": "PushCube-v1", "seeds": [1, 2]},
            "planned": 2,
            "counted": 2,
            "success_once": RATE,
            "episodes": [episode(1, "success"), episode(2, "error", error="=HYPERLINK(evil)", initial_state=None)],
        }
    ],
    "suites": [{"suite": "maniskill", "planned": 2, "counted": 2, "success_once": RATE, "success_at_end": RATE}],
    "overall": {"planned": 2, "counted": 2, "success_once": RATE},
    "protocol_hashes": ["h"],
}


@pytest.fixture
def evaluated(alice: Person, runtime: InMemoryRuntime) -> str:
    """The id of an evaluation job that published a report and a film."""
    job, key = start_policy_job(alice, runtime, "evaluation")
    publish(runtime, key, "video", FILM, media_type="video/mp4", name="PushCube-v1-seed1-success.mp4")
    publish(runtime, key, "evaluation", json.dumps(REPORT).encode(), media_type="application/json", name="report")
    relay_all(runtime)
    return str(job.pk)


def artifacts(person: Person, query: str = "") -> list[dict[str, Any]]:
    answer = person.api.get(f"/api/v1/artifacts{query}")
    assert answer.status_code == 200
    return answer.json()["results"]


def film(person: Person) -> dict[str, Any]:
    (row,) = artifacts(person, "?kind=video")
    return row


def table(answer: Any) -> list[list[str]]:
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"].startswith("attachment")
    return list(csv.reader(io.StringIO(content_of(answer).decode())))


def test_files_are_listed_by_kind_over_all_jobs_and_of_one(alice: Person, charlie: Person, evaluated: str) -> None:
    assert sorted(row["kind"] for row in artifacts(alice)) == ["adapter", "evaluation", "video"]
    assert [row["kind"] for row in artifacts(alice, "?kind=adapter")] == ["adapter"]
    of_job = alice.api.get(f"/api/v1/jobs/{evaluated}/artifacts?kind=video").json()["results"]
    assert [(row["job"], row["media_type"]) for row in of_job] == [(evaluated, "video/mp4")]
    assert alice.api.get(f"/api/v1/artifacts/{of_job[0]['id']}").json() == of_job[0]
    assert artifacts(charlie) == []
    refused = alice.api.get("/api/v1/artifacts?kind=song")
    assert refused.status_code == 422
    assert "'adapter'" in refused.json()["errors"][0]["detail"]


def test_a_whole_film_is_shown_in_place_and_may_be_sought_in(alice: Person, evaluated: str) -> None:
    answer = alice.api.get(film(alice)["download"])
    assert content_of(answer) == FILM
    assert (answer.status_code, answer["Content-Type"], answer["Accept-Ranges"]) == (200, "video/mp4", "bytes")
    assert answer["Content-Length"] == str(len(FILM))
    assert answer["Content-Disposition"].startswith("inline")
    assert answer["Content-Disposition"].rstrip('"').endswith("success.mp4")
    assert answer["Cache-Control"] == "private, no-cache"


@pytest.mark.parametrize(
    ("asked", "first", "last"), [("0-", 0, 10_239), ("500-999", 500, 999), ("-100", 10_140, 10_239)]
)
def test_a_player_gets_the_part_it_asks_for(
    alice: Person, evaluated: str, runtime: InMemoryRuntime, asked: str, first: int, last: int
) -> None:
    answer = alice.api.get(film(alice)["download"], headers={"Range": f"bytes={asked}"})
    assert answer.status_code == 206
    assert answer["Content-Range"] == f"bytes {first}-{last}/{len(FILM)}"
    assert answer["Content-Length"] == str(last - first + 1)
    assert content_of(answer) == FILM[first : last + 1]
    assert runtime.ranges_served == [(first, last)]  # no more than that was read from the runtime


def test_a_logged_in_browser_seeks_without_a_key(alice: Person, charlie: Person, evaluated: str) -> None:
    address = film(alice)["download"]
    answer = alice.browser().get(address, headers={"Range": "bytes=2-4"})
    assert (answer.status_code, content_of(answer)) == (206, FILM[2:5])
    assert charlie.browser().get(address, headers={"Range": "bytes=2-4"}).status_code == 404


def test_a_part_behind_the_end_is_416_with_the_size(alice: Person, evaluated: str) -> None:
    answer = alice.api.get(film(alice)["download"], headers={"Range": "bytes=10240-"})
    assert (answer.status_code, answer["Content-Range"]) == (416, f"bytes */{len(FILM)}")
    assert answer["Content-Type"] == "application/problem+json"


def test_a_part_of_another_file_is_not_continued(alice: Person, evaluated: str) -> None:
    row = film(alice)
    for tag, sent in ((f'"{row["sha256"]}"', FILM[5:10]), ('"another"', FILM)):
        answer = alice.api.get(row["download"], headers={"Range": "bytes=5-9", "If-Range": tag})
        assert content_of(answer) == sent


def test_a_kept_file_is_not_sent_again(alice: Person, evaluated: str) -> None:
    row = film(alice)
    answer = alice.api.get(row["download"], headers={"If-None-Match": f'"{row["sha256"]}"'})
    assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", f'"{row["sha256"]}"')


def test_a_runtime_that_sends_everything_is_not_taken_for_one_that_sends_a_part(
    alice: Person, evaluated: str, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runtime.artifact
    monkeypatch.setattr(runtime, "artifact", lambda name, first=None, last=None: whole(name))
    answer = alice.api.get(film(alice)["download"], headers={"Range": "bytes=5-9"})
    assert answer.status_code == 200
    assert content_of(answer) == FILM


def test_charlie_gets_the_answer_of_a_missing_file_for_any_part(
    alice: Person, charlie: Person, evaluated: str, runtime: InMemoryRuntime
) -> None:
    for headers in ({}, {"Range": "bytes=0-9"}, {"Range": "bytes=99999-"}, {"If-None-Match": film(alice)["sha256"]}):
        assert charlie.api.get(film(alice)["download"], headers=headers).status_code == 404
    assert runtime.ranges_served == []


def test_a_media_type_that_a_browser_would_run_is_not_served_as_such(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_policy_job(alice, runtime, "evaluation")
    publish(runtime, key, "video", b"<script>", media_type="text/html")
    relay_all(runtime)
    answer = alice.api.get(film(alice)["download"])
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    answer.close()


def test_the_report_is_told_as_it_was_published(alice: Person, charlie: Person, evaluated: str) -> None:
    assert alice.api.get(f"/api/v1/jobs/{evaluated}/evaluation").json() == REPORT
    assert charlie.api.get(f"/api/v1/jobs/{evaluated}/evaluation").status_code == 404


def test_a_viewer_reads_report_and_films_and_submits_nothing(alice: Person, viewer: Person, evaluated: str) -> None:
    assert viewer.api.get(f"/api/v1/jobs/{evaluated}/evaluation").json() == REPORT
    answer = viewer.api.get(film(viewer)["download"])
    assert (answer.status_code, content_of(answer)) == (200, FILM)
    for kind in ("rl", "evaluation", "rollout"):
        assert viewer.api.post("/api/v1/jobs", make_policy_spec(kind, make_adapter(alice))).status_code == 403


def test_without_a_report_the_answer_says_so(alice: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_policy_job(alice, runtime, "evaluation")
    answer = alice.api.get(f"/api/v1/jobs/{job.pk}/evaluation")
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("no-evaluation")


def test_a_report_that_is_not_the_published_one_is_not_told(
    alice: Person, evaluated: str, runtime: InMemoryRuntime
) -> None:
    for name in runtime.artifacts:
        runtime.artifacts[name] = b'{"overall": "all is well"}'
    answer = alice.api.get(f"/api/v1/jobs/{evaluated}/evaluation")
    assert answer.status_code == 502
    assert answer.json()["type"].endswith("artifact-altered")


def test_a_report_too_large_to_read_is_refused_before_it_is_read(alice: Person, evaluated: str) -> None:
    with platform_scope():
        Artifact.objects.filter(kind="evaluation").update(size_bytes=2**40)
    assert alice.api.get(f"/api/v1/jobs/{evaluated}/evaluation").status_code == 502


@pytest.mark.parametrize(("query", "headers"), [("?format=csv", {}), ("", {"Accept": "text/csv"})])
def test_episodes_come_as_a_table_that_no_spreadsheet_runs(
    alice: Person, evaluated: str, query: str, headers: dict[str, str]
) -> None:
    head, *rows = table(alice.api.get(f"/api/v1/jobs/{evaluated}/evaluation{query}", headers=headers))
    assert head[:5] == ["task", "seed", "outcome", "success_once", "success_at_end"]
    assert rows == [
        ["PushCube-v1", "1", "success", "True", "True", "20", "-0.5", "", "s1"],
        ["PushCube-v1", "2", "error", "False", "False", "20", "-0.5", "'=HYPERLINK(evil)", ""],
    ]


def test_a_report_of_another_form_is_refused_as_a_whole_not_broken_off_in_the_middle(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_policy_job(alice, runtime, "evaluation")
    odd = REPORT | {"tasks": [*REPORT["tasks"], {"protocol": {}}]}
    publish(runtime, key, "evaluation", json.dumps(odd).encode(), media_type="application/json", name="report")
    relay_all(runtime)
    answer = alice.api.get(f"/api/v1/jobs/{job.pk}/evaluation?format=csv")
    assert (answer.status_code, answer["Content-Type"]) == (502, "application/problem+json")
    assert json.loads(answer.content)["type"].endswith("report-invalid")


def test_a_refusal_is_a_problem_also_for_those_who_asked_for_a_table(charlie: Person, evaluated: str) -> None:
    answer = charlie.api.get(f"/api/v1/jobs/{evaluated}/evaluation", headers={"Accept": "text/csv"})
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert json.loads(answer.content)["type"].endswith("not-found")


def test_every_metric_point_comes_as_a_table(alice: Person, runtime: InMemoryRuntime, monkeypatch: Any) -> None:
    monkeypatch.setattr("jobs.selectors.points._NUMBERS_PER_QUERY", 7)
    job, key = start_policy_job(alice, runtime, "rl")
    for step in range(1, 31):
        values = {"rollout/return": -step / 8, "train/loss": float("-inf") if step == 9 else 0.5}
        runtime.tell(*key, MetricsRecorded(step=step, values=values))
    relay_all(runtime)
    head, *rows = table(alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?format=csv"))
    assert head == ["attempt", "step", "series", "value", "occurred_at"]
    returns = [(int(step), float(value)) for _, step, series, value, _ in rows if series == "rollout/return"]
    assert returns == [(step, -step / 8) for step in range(1, 31)]
    assert [value for _, step, series, value, _ in rows if (series, step) == ("train/loss", "9")] == ["-inf"]
    some = table(alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?format=csv&series=train/loss&from=3&to=4"))
    assert [(row[1], row[2]) for row in some[1:]] == [("3", "train/loss"), ("4", "train/loss")]
    decimated = alice.api.get(f"/api/v1/jobs/{job.pk}/metrics?format=json&max_points=5").json()
    assert all(curve["shown"] <= 5 for curve in decimated["series"])


def test_a_format_there_is_not_is_refused(alice: Person, evaluated: str) -> None:
    assert alice.api.get(f"/api/v1/jobs/{evaluated}/metrics?format=xml").status_code in {404, 422}


def test_the_hash_of_a_whole_file_is_told_with_each_part(alice: Person, evaluated: str) -> None:
    answer = alice.api.get(film(alice)["download"], headers={"Range": "bytes=0-0"})
    assert answer["X-Checksum-SHA256"] == hashlib.sha256(FILM).hexdigest()
    answer.close()
