"""The jobs API as a caller sees it."""

import hashlib
import uuid
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from gpu_runtime.protocol.messages import (
    ArtifactPublished,
    LogWritten,
    MetricsRecorded,
    PolicyVersionPublished,
    WorkloadState,
)
from jobs import runtime_client
from jobs.models import Job
from jobs.runtime_client import RuntimeUnreachable
from tenants.scope import platform_scope
from tests.support.jobs import make_job, make_spec, make_version, relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.service_steps import environment_use
from tests.support.story import Person

pytestmark = pytest.mark.django_db

ZIP = b"PK\x05\x06" + bytes(18)


def publish(runtime: InMemoryRuntime, key: tuple[str, int]) -> None:
    runtime.artifacts["adapter-1"] = ZIP
    body = ArtifactPublished(
        artifact_id="adapter-1",
        kind="adapter",
        name="adapter",
        policy_version=7,
        bytes=len(ZIP),
        sha256=hashlib.sha256(ZIP).hexdigest(),
        files=(),
        manifest={"format": 1},
    )
    runtime.tell(*key, body)
    runtime.tell(*key, PolicyVersionPublished(version=7, step=7, checkpoint="step-7", sha256="a" * 64))
    relay_all(runtime)


def content_of(response: Any) -> bytes:
    async def read() -> bytes:
        return b"".join([part async for part in response.streaming_content])

    return async_to_sync(read)()


def test_a_submit_is_answered_202_with_the_jobs_address(bob: Person, runtime: InMemoryRuntime) -> None:
    answer = bob.api.post("/api/v1/jobs", make_spec(make_version(bob)))
    assert answer.status_code == 202, answer.data
    assert answer["Location"] == f"/api/v1/jobs/{answer.data['id']}"
    detail = bob.api.get(answer["Location"])
    assert detail.data["state"] == "queued"
    assert detail.data["created_by"] == "bob@example.org"
    assert detail.data["cost"] == {"amount": "0", "currency": "EUR", "lines": []}
    assert detail.data["compute_share"] is None


def test_the_same_key_is_one_job_and_another_body_is_refused(bob: Person) -> None:
    spec, headers = make_spec(make_version(bob)), {"Idempotency-Key": str(uuid.uuid4())}
    first = bob.api.post("/api/v1/jobs", spec, headers=headers)
    again = bob.api.post("/api/v1/jobs", spec, headers=headers)
    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")
    assert again.json()["id"] == first.json()["id"]
    assert bob.api.post("/api/v1/jobs", {**spec, "name": "other"}, headers=headers).status_code == 422
    with platform_scope():
        assert Job.objects.count() == 1


def test_a_viewer_may_look_but_not_submit_or_cancel(alice: Person, viewer: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_job(alice, runtime)
    assert viewer.api.get(f"/api/v1/jobs/{job.pk}").status_code == 200
    assert viewer.api.post("/api/v1/jobs", make_spec(make_version(alice))).status_code == 403
    assert viewer.api.post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 403


@pytest.mark.parametrize("tail", ["", "/events", "/metrics", "/artifacts", "/policy-versions"])
def test_charlie_gets_the_404_of_a_missing_job(
    alice: Person, charlie: Person, runtime: InMemoryRuntime, tail: str
) -> None:
    job, key = start_job(alice, runtime)
    publish(runtime, key)
    missing = uuid.uuid4()
    foreign = charlie.api.get(f"/api/v1/jobs/{job.pk}{tail}")
    unknown = charlie.api.get(f"/api/v1/jobs/{missing}{tail}")
    assert foreign.status_code == unknown.status_code == 404
    differing = {"instance", "request_id"}
    assert {k: v for k, v in foreign.json().items() if k not in differing} == {
        k: v for k, v in unknown.json().items() if k not in differing
    }


def test_charlie_can_neither_cancel_nor_download_nor_see_alices_in_a_list(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    publish(runtime, key)
    artifact = alice.api.get(f"/api/v1/jobs/{job.pk}/artifacts").json()["results"][0]
    assert charlie.api.post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 404
    assert charlie.api.get(artifact["download"]).status_code == 404
    assert charlie.api.get("/api/v1/jobs").json()["results"] == []


@pytest.mark.parametrize(
    "address", ["jobs?colour=red", "jobs?state=asleep", "bases?x=1", "runtime?x=1", "jobs?limit=0", "jobs?kind=x"]
)
def test_an_unknown_or_impossible_parameter_is_refused(alice: Person, address: str) -> None:
    answer = alice.api.get(f"/api/v1/{address}")
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"


def test_the_list_is_filtered_by_state_and_name_and_walks_by_cursor(alice: Person, runtime: InMemoryRuntime) -> None:
    for name in ("push one", "push two", "pick"):
        make_job(alice, name=name)
    start_job(alice, runtime, name="push three")
    names = [row["name"] for row in alice.api.get("/api/v1/jobs?q=PUSH&state=queued").json()["results"]]
    assert names == ["push two", "push one"]
    page = alice.api.get("/api/v1/jobs?limit=3").json()
    rest = alice.api.get(page["next"]).json()
    assert [row["name"] for row in page["results"] + rest["results"]] == ["push three", "pick", "push two", "push one"]
    assert rest["next"] is None


def test_detail_tells_cost_share_and_attempts_and_no_other_tenants_time(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    _, other = start_job(charlie, runtime)
    for one in (key, other):
        runtime.tell_state(*one, WorkloadState.RUNNING)
    runtime.train_step([key, other], 1, busy_us=2000)
    runtime.train_step([key], 2, busy_us=2000)
    environment_use(runtime, other, steps=10, busy_us=10**9)  # processes' time is no device time
    runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=2)
    relay_all(runtime)
    answer = alice.api.get(f"/api/v1/jobs/{job.pk}")
    assert answer.data["compute_share"] == pytest.approx(3000 / 4000)
    quantities = {line["meter"]: line["quantity"] for line in answer.data["cost"]["lines"]}
    assert quantities == {"train.samples": 32, "train.compute_us": 3000}
    assert [attempt["state"] for attempt in answer.data["attempts"]] == ["succeeded"]
    assert str(charlie.tenant.pk) not in answer.content.decode()


def test_events_continue_after_a_cursor_without_gap_or_repeat(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    for number in range(5):
        runtime.tell(*key, LogWritten(level="info", message=str(number)))
        runtime.tell(*key, MetricsRecorded(step=number, values={"loss": 1.0}))
    relay_all(runtime)
    seen, after = [], 0
    while True:
        page = alice.api.get(f"/api/v1/jobs/{job.pk}/events?after={after}&limit=2").json()
        seen += page["events"]
        after = page["seq"]
        if not page["more"]:
            break
    logs = [event["data"]["message"] for event in seen if event["type"] == "log"]
    assert logs == ["0", "1", "2", "3", "4"]
    assert len({event["seq"] for event in seen}) == len(seen)
    assert after == alice.api.get(f"/api/v1/jobs/{job.pk}").data["last_seq"]
    nothing = alice.api.get(f"/api/v1/jobs/{job.pk}/events?after={after}&wait=0.1").json()
    assert (nothing["events"], nothing["seq"]) == ([], after)


def test_waiting_for_a_finished_job_returns_at_once(alice: Person) -> None:
    job = make_job(alice)
    alice.api.post(f"/api/v1/jobs/{job.pk}/cancel")
    page = alice.api.get(f"/api/v1/jobs/{job.pk}/events?after=99&wait=20").json()
    assert page["state"] == "cancelled"


def test_cancelling_is_answered_with_the_state_it_led_to(bob: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(bob, runtime)
    answer = bob.api.post(f"/api/v1/jobs/{job.pk}/cancel")
    assert (answer.status_code, answer.data["state"]) == (202, "cancelling")
    assert bob.api.post(f"/api/v1/jobs/{job.pk}/cancel", {"force": True}).status_code == 422
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    relay_all(runtime)
    assert bob.api.post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 409


def test_a_download_streams_the_runtimes_bytes_as_an_attachment(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime, name='../"evil"\r\nname')
    publish(runtime, key)
    artifact = alice.api.get(f"/api/v1/jobs/{job.pk}/artifacts").json()["results"][0]
    answer = alice.api.get(artifact["download"])
    assert content_of(answer) == ZIP
    assert answer["Content-Type"] == "application/zip"
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    assert "/" not in answer["Content-Disposition"].partition("filename=")[2]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Checksum-SHA256"] == hashlib.sha256(ZIP).hexdigest() == artifact["sha256"]
    versions = alice.api.get(f"/api/v1/jobs/{job.pk}/policy-versions").json()["results"]
    assert [version["version"] for version in versions] == [7]


def test_a_download_without_the_runtime_is_503_and_a_lost_file_502(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, key = start_job(alice, runtime)
    publish(runtime, key)
    address = alice.api.get(f"/api/v1/jobs/{job.pk}/artifacts").json()["results"][0]["download"]
    runtime.artifacts.clear()
    assert alice.api.get(address).status_code == 502

    def away() -> None:
        raise RuntimeUnreachable("away", maybe_delivered=False)

    monkeypatch.setattr(runtime_client, "connect", away)
    assert alice.api.get(address).status_code == 503


def test_the_runtime_page_tells_utilization_and_no_tenants(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    assert alice.api.get("/api/v1/runtime").json()["state"] == "never_seen"
    start_job(charlie, runtime)
    relay_all(runtime)
    answer = alice.api.get("/api/v1/runtime")
    body = answer.json()
    assert (body["state"], body["active_jobs"]) == ("ready", 1)
    assert body["services"][0]["busy_share"] == 0.25
    assert body["services"][0]["group_size_mean"] == 1.5
    seats = {row["service"]: (row["seats_used"], row["seats_total"]) for row in body["services"]}
    assert seats == {"training": (None, None), "inference": (None, None), "environment": (3, 32)}
    assert str(charlie.tenant.pk) not in answer.content.decode()
    assert "Charlie" not in answer.content.decode()


def test_bases_are_labelled_and_tell_what_the_runtime_knows(alice: Person, runtime: InMemoryRuntime) -> None:
    relay_all(runtime)
    bases = {base["name"]: base for base in alice.api.get("/api/v1/bases").json()["results"]}
    assert bases["tiny-qwen3-vl"]["resident"]
    assert bases["tiny-qwen3-vl"]["info"]["layers"] == 4
    assert bases["small-qwen3-vl"] == {
        "name": "small-qwen3-vl",
        "random_weights": True,
        "resident": False,
        "info": None,
    }


def test_the_openapi_document_holds_the_whole_job_specification(alice: Person) -> None:
    document = alice.api.get("/api/v1/schema?format=json").json()
    schemas = document["components"]["schemas"]
    assert schemas["SftJobSpec"]["additionalProperties"] is False
    assert schemas["SftJobSpec"]["properties"]["training"] == {"$ref": "#/components/schemas/TrainingSpec"}
    assert {"Gr00tHeadSpec", "OftHeadSpec", "MlpHeadSpec", "DatasetSelection", "OptimizerSpec"} <= set(schemas)
    submit = document["paths"]["/api/v1/jobs"]["post"]
    body = submit["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    kinds = {"sft": "SftJobSpec", "rl": "RlJobSpec", "evaluation": "EvaluationJobSpec", "rollout": "RolloutJobSpec"}
    mapping = {kind: f"#/components/schemas/{name}" for kind, name in kinds.items()}
    assert schemas[body]["discriminator"] == {"propertyName": "kind", "mapping": mapping}
    assert schemas[body]["oneOf"] == [{"$ref": reference} for reference in mapping.values()]
    assert any(parameter["name"] == "Idempotency-Key" for parameter in submit["parameters"])
