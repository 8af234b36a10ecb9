"""The Python client against the real API: what it asks is what the server understands."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync
from django.test import Client as DjangoClient

from gpu_runtime.protocol.messages import ArtifactPublished, WorkloadState
from jobs.models import Job
from joynexus_client import Client, Conflict, Corrupted, Forbidden, Invalid, NotFound, Unauthorized, Unreachable
from tenants.scope import platform_scope
from tests.support.factories import make_key
from tests.support.jobs import make_spec, make_version, relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db

Interfere = Callable[[httpx.Request], httpx.Response | None]
ZIP = b"PK\x05\x06" + bytes(18)


def through_django(
    before: Interfere = lambda request: None, after: Interfere = lambda request: None
) -> httpx.MockTransport:
    """Requests of the client, answered by the API in this process; ``before`` and ``after`` play a bad network."""

    def handle(request: httpx.Request) -> httpx.Response:
        early = before(request)
        if early is not None:
            return early
        response = _ask_django(request, request.read())
        return after(request) or response

    return httpx.MockTransport(handle)


def _ask_django(request: httpx.Request, body: bytes) -> httpx.Response:
    headers = {name: value for name, value in request.headers.items() if name not in {"host", "content-length"}}
    answer = DjangoClient(raise_request_exception=False).generic(
        request.method,
        request.url.raw_path.decode(),
        body,
        content_type=headers.pop("content-type", "application/json"),
        headers=headers,
    )
    return httpx.Response(answer.status_code, headers=dict(answer.items()), content=_content(answer))


def _content(answer: Any) -> bytes:
    if not answer.streaming:
        return answer.content

    async def read() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(read)()


def client_of(person: Person, **network: Interfere) -> Client:
    transport = through_django(**network)
    return Client("http://localhost", person.key, transport=transport, sleep=lambda seconds: None)


def test_a_job_is_submitted_found_listed_and_cancelled(bob: Person) -> None:
    client = client_of(bob)
    job = client.jobs.submit(make_spec(make_version(bob)))
    assert client.jobs.get(job["id"])["state"] == "queued"
    assert [row["id"] for row in client.jobs.list(state="queued", q="cube")] == [job["id"]]
    assert client.jobs.cancel(job["id"])["state"] == "cancelled"
    assert client.jobs.wait(job["id"], timeout_s=1)["state"] == "cancelled"
    assert [event["data"]["state"] for event in client.jobs.follow(job["id"])] == ["queued", "cancelled"]


def test_an_answer_lost_on_the_way_is_not_a_second_job(bob: Person) -> None:
    lost: list[str] = []

    def lose_the_first_answer(request: httpx.Request) -> None:
        if request.method == "POST" and not lost:
            lost.append(request.headers["Idempotency-Key"])
            raise httpx.ReadError("connection reset", request=request)

    job = client_of(bob, after=lose_the_first_answer).jobs.submit(make_spec(make_version(bob)))
    assert len(lost) == 1
    with platform_scope():
        assert [str(row.pk) for row in Job.objects.all()] == [job["id"]]


def test_a_server_that_is_briefly_away_is_asked_again_and_one_that_stays_away_is_named(bob: Person) -> None:
    answers = [503, 502, 429]

    def refuse_three_times(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(answers.pop(), json={}) if answers else None

    assert client_of(bob, before=refuse_three_times).me()["tenant"]["name"] == "Alice's lab"

    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(Unreachable, match="refused"):
        client_of(bob, before=never).me()


def test_a_request_that_is_still_under_way_is_repeated_and_any_other_conflict_is_told(bob: Person) -> None:
    under_way = [httpx.Response(409, json={}, headers={"Retry-After": "1"})] * 2
    answers = list(under_way)
    client = client_of(bob, before=lambda request: answers.pop() if answers else None)
    assert client.me()["tenant"]["name"] == "Alice's lab"
    assert answers == []
    with pytest.raises(Conflict):
        client_of(bob, before=lambda request: httpx.Response(409, json={})).me()


def test_refusals_come_as_named_errors_with_the_fields(
    alice: Person, viewer: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    with pytest.raises(Invalid) as invalid:
        client_of(alice).jobs.submit(make_spec(make_version(alice), base_model="gpt", head={"wdth": 3}))
    assert invalid.value.code == "validation_failed"
    assert [problem.pointer for problem in invalid.value.problems] == ["/head/wdth"]
    assert "'wdth'" in str(invalid.value)
    with pytest.raises(Forbidden):
        client_of(viewer).jobs.cancel(str(job.pk))
    with pytest.raises(NotFound):
        client_of(charlie).jobs.get(str(job.pk))
    with pytest.raises(Unauthorized):
        Client("http://localhost", "jnx_no_key", transport=through_django()).me()
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    relay_all(runtime)
    with pytest.raises(Conflict):
        client_of(alice).jobs.cancel(str(job.pk))


def test_metrics_usage_prices_bases_and_runtime_are_read(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_job(alice, runtime)
    runtime.train_step([key], 1, busy_us=1000)
    runtime.train_step([key], 2, busy_us=1000)
    relay_all(runtime)
    client = client_of(alice)
    page = client.jobs.metrics(str(job.pk), series=("loss",), from_step=2, max_points=10)
    assert [(curve["step"], curve["last"]) for curve in page["series"]] == [([2], [0.5])]
    quantities = {row["meter"]: row["quantity"] for row in client.usage(job=str(job.pk))}
    assert quantities == {"train.samples": 32, "train.compute_us": 2000}
    assert {price["meter"] for price in client.prices()} >= set(quantities)
    assert client.bases()[0]["name"] == "tiny-qwen3-vl"
    assert client.runtime()["state"] == "ready"


def publish(runtime: InMemoryRuntime, key: tuple[str, int], *, sha256: str) -> None:
    runtime.artifacts["a"] = ZIP
    body = ArtifactPublished(
        artifact_id="a",
        kind="adapter",
        name="adapter",
        policy_version=1,
        bytes=len(ZIP),
        sha256=sha256,
        files=(),
        manifest={},
    )
    runtime.tell(*key, body)
    relay_all(runtime)


def test_a_download_is_whole_and_checked(alice: Person, runtime: InMemoryRuntime, tmp_path: Path) -> None:
    job, key = start_job(alice, runtime)
    publish(runtime, key, sha256=hashlib.sha256(ZIP).hexdigest())
    client = client_of(alice)
    (artifact,) = client.jobs.artifacts(str(job.pk))
    assert client.artifacts.download(artifact["id"], to=tmp_path / "adapter.zip").read_bytes() == ZIP


def test_a_corrupted_download_leaves_nothing_behind(alice: Person, runtime: InMemoryRuntime, tmp_path: Path) -> None:
    job, key = start_job(alice, runtime)
    publish(runtime, key, sha256="0" * 64)
    client = client_of(alice)
    (artifact,) = client.jobs.artifacts(str(job.pk))
    with pytest.raises(Corrupted):
        client.artifacts.download(artifact["id"], to=tmp_path / "adapter.zip")
    assert list(tmp_path.glob("adapter*")) == []


def test_a_folder_is_uploaded_as_one_archive_with_its_digest(bob: Person, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    (recording / "meta").mkdir(parents=True)
    (recording / "meta" / "info.json").write_text("{}")
    (recording / "data.bin").write_bytes(b"12345")
    sent: dict[str, Any] = {}

    def look(request: httpx.Request) -> None:
        body = request.read()
        archive = tmp_path / "sent.zip"
        archive.write_bytes(body)
        with zipfile.ZipFile(archive) as content:
            sent["names"] = sorted(content.namelist())
        sent["digest_holds"] = request.headers["X-Content-SHA256"] == hashlib.sha256(body).hexdigest()
        sent["declared"] = json.loads(request.url.params["declared"])

    client = client_of(bob, before=look)
    version = client.datasets.upload(recording, name="push", declared={"representation": "delta_joint"})
    assert sent == {
        "names": ["data.bin", "meta/info.json"],
        "digest_holds": True,
        "declared": {"representation": "delta_joint"},
    }
    assert version["state"] == "received"
    assert [dataset["name"] for dataset in client_of(bob).datasets.list()] == ["push"]
    with pytest.raises(FileNotFoundError):
        client.datasets.upload(tmp_path / "missing", name="push")


def test_waiting_for_an_invalid_dataset_raises_its_defects(bob: Person) -> None:
    place = {"file": "data/0.parquet", "episode": 2, "frame": 0, "feature": "action"}
    defect = {"severity": "error", "code": "not_finite", "message": "NaN", **place}
    version = make_version(bob, state="invalid", reason="NaN", summary=None, report={"defects": [defect]})
    with pytest.raises(Invalid, match="NaN") as invalid:
        client_of(bob).datasets.wait_ready(str(version.pk))
    (problem,) = invalid.value.problems
    assert (problem.pointer, problem.detail) == ("data/0.parquet", "NaN (episode 2, frame 0, feature action)")


def test_a_key_of_a_viewer_cannot_submit(alice: Person) -> None:
    _, key = make_key(alice.tenant, "viewer", alice.user)
    client = Client("http://localhost", key, transport=through_django(), sleep=lambda seconds: None)
    with pytest.raises(Forbidden):
        client.jobs.submit(make_spec(make_version(alice)))


def test_a_log_is_read_by_pages_and_saved_and_an_ended_job_is_run_again(bob: Person, tmp_path: Path) -> None:
    client = client_of(bob)
    job = client.jobs.submit(make_spec(make_version(bob)))
    with pytest.raises(Conflict):
        client.jobs.retry(job["id"])
    client.jobs.cancel(job["id"])
    page = client.jobs.logs(job["id"], limit=1)
    assert [(line["level"], line["state"]) for line in page["lines"]] == [("state", "cancelled")]
    assert page["older"]
    older = client.jobs.logs(job["id"], before=page["lines"][0]["seq"])
    assert [line["state"] for line in older["lines"]] == ["queued"]
    assert client.jobs.logs(job["id"], level="error", q="x", attempt=1)["lines"] == []
    saved = client.jobs.log_text(job["id"], tmp_path / "log.txt").read_text()
    assert [line.split("  ")[-1] for line in saved.splitlines()] == ["queued", "cancelled: cancelled_by_user"]
    again = client.jobs.retry(job["id"], idempotency_key="once")
    assert client.jobs.retry(job["id"], idempotency_key="once")["id"] == again["id"] != job["id"]
