"""The gateway: who may speak, what is refused and how it is said, waiting readers, downloads."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import (
    DatasetBinding,
    ErrorBody,
    EventBatch,
    LogWritten,
    RuntimeStatus,
    SubmitJob,
    WorkloadStatus,
)
from gpu_runtime.protocol.wire import MEDIA_TYPE, decode, encode, pack
from gpu_runtime.services.gateway import BODY_MAX_BYTES
from gpu_runtime.store.records import Entry, Write
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import TOKEN, ended, events_of, make_config, running, submit_message


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def binding(datasets: Path) -> DatasetBinding:
    return bind(datasets, make_dataset(datasets / "one"))


@pytest.fixture
async def runtime(tmp_path: Path, datasets: Path) -> AsyncIterator[LocalRuntime]:
    async with running(make_config(tmp_path, datasets)) as runtime:
        yield runtime


@pytest.fixture
async def http(runtime: LocalRuntime) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(runtime.gateway().app(), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://runtime", headers=headers) as client:
        yield client


def refusal(response: httpx.Response) -> ErrorBody:
    assert response.headers["content-type"] == MEDIA_TYPE
    return decode(ErrorBody, response.content)


@pytest.mark.parametrize("header", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN} ", "Bearer \xff"])
async def test_without_the_token_nothing_but_health_answers(http: httpx.AsyncClient, header: str) -> None:
    headers = [(b"authorization", header.encode("latin-1"))]
    for method, path in [("POST", "/v1/jobs"), ("GET", "/v1/jobs/j/1"), ("GET", "/v1/events"), ("GET", "/v1/status")]:
        response = await http.request(method, path, headers=headers)
        assert response.status_code == 401, path
        assert refusal(response).code == "unauthorised"
    health = await http.get("/healthz", headers=headers)
    assert (health.status_code, health.text) == (200, "OK\n")


async def test_a_submit_is_idempotent_and_another_body_is_a_conflict(
    http: httpx.AsyncClient, runtime: LocalRuntime, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=2)
    answers = await asyncio.gather(*(http.post("/v1/jobs", content=encode(submit)) for _ in range(4)))
    assert [answer.status_code for answer in answers] == [202] * 4
    other = submit.model_copy(update={"tenant_weight": 9})
    conflict = await http.post("/v1/jobs", content=encode(other))
    assert (conflict.status_code, refusal(conflict).code) == (409, "conflict")
    await ended(runtime, submit)
    again = await http.post("/v1/jobs", content=encode(submit))
    assert (again.status_code, decode(WorkloadStatus, again.content).state) == (202, "succeeded")
    accepted = [e for e in events_of(runtime, "job") if e.body.type == "state" and e.body.state == "accepted"]
    assert len(accepted) == 1


def changed(submit: SubmitJob, **changes) -> bytes:
    """The message with fields replaced; ``spec__head__horizon`` goes down two levels."""
    document = submit.model_dump(mode="json", by_alias=True)
    for path, value in changes.items():
        place = document
        *parents, name = path.split("__")
        for parent in parents:
            place = place[parent]
        place[name] = value
    return pack(document)


@pytest.mark.parametrize(
    ("changes", "code", "field", "says"),
    [
        ({"spec__base_model": "gpt"}, "unknown_base_model", "spec.base_model", "'gpt' is not resident; allowed: tiny"),
        ({"spec__head__horizon": 60}, "horizon_mismatch", "spec.head.horizon", "60: the longest episode has 14"),
        ({"spec__head__tap": "layer:99"}, "unknown_tap", "spec.head.tap", "layer:99"),
        ({"spec__head__colour": "red"}, "invalid", "spec.head.mlp.colour", "Extra inputs are not permitted"),
        ({"spec__dataset__cameras": ["top"]}, "camera_mismatch", "spec.dataset.cameras", "observation.images.view0"),
        ({"spec__dataset__cameras": []}, "camera_mismatch", "spec.dataset.cameras", "reads images"),
        ({"spec__dataset__action_dim": 7}, "action_dim_mismatch", "spec.dataset.action_dim", "7: the dataset's act"),
        ({"spec__dataset__id": "foreign"}, "dataset_mismatch", "dataset.version_id", "'foreign'"),
        ({"dataset__storage_key": "../etc"}, "dataset_outside_root", "dataset.storage_key", "'../etc'"),
        ({"dataset__storage_key": ""}, "dataset_outside_root", "dataset.storage_key", "''"),
        ({"dataset__storage_key": "none"}, "dataset_missing", "dataset.storage_key", "'none'"),
        (
            {"spec__training__batch_size": 1024, "spec__dataset__image_size": 1024},
            "partition_too_large",
            "spec.training.batch_size",
            "batch_size 1024: a sample of 1 views at image_size 1024 has 3145728 bytes, a batch may have 1073741824; "
            "allowed: at most 341",
        ),
        ({"attempt": 0}, "invalid", "attempt", "greater than or equal to 1"),
        ({"job_id": "a/b"}, "invalid_job_id", "job_id", "letters, digits"),
    ],
)
async def test_a_job_that_can_never_run_is_refused_naming_the_field(
    http: httpx.AsyncClient,
    runtime: LocalRuntime,
    binding: DatasetBinding,
    changes: dict,
    code: str,
    field: str,
    says: str,
) -> None:
    response = await http.post("/v1/jobs", content=changed(submit_message(binding), **changes))
    body = refusal(response)
    assert (response.status_code, body.code, body.field) == (422, code, field)
    assert says in body.message
    assert events_of(runtime) == []


async def test_of_a_body_with_very_many_faults_the_first_few_are_told(
    http: httpx.AsyncClient, binding: DatasetBinding
) -> None:
    faults = {f"unknown{n:05}": n for n in range(20_000)}
    body = refusal(await http.post("/v1/jobs", content=changed(submit_message(binding), **faults)))
    assert (body.code, body.field) == ("invalid", "unknown00000")
    assert body.message.endswith("unknown00009: Extra inputs are not permitted; and 19990 more")


async def test_a_link_out_of_the_dataset_root_is_refused(
    http: httpx.AsyncClient, datasets: Path, tmp_path: Path, binding: DatasetBinding
) -> None:
    link = datasets / "link"
    link.symlink_to(tmp_path)
    response = await http.post("/v1/jobs", content=changed(submit_message(binding), dataset__storage_key="link"))
    link.unlink()
    assert refusal(response).code == "dataset_outside_root"


@pytest.mark.parametrize("body", [b"", b"\xc1", b"not msgpack", pack([1, 2]), b"\x80" * 9])
async def test_bytes_that_are_no_message_are_refused(http: httpx.AsyncClient, body: bytes) -> None:
    response = await http.post("/v1/jobs", content=body)
    assert response.status_code == 422
    assert refusal(response).code in ("malformed", "invalid")


async def test_a_body_past_the_limit_is_refused_before_it_is_held(http: httpx.AsyncClient) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 2**20
            yield bytes(2**20)

    response = await http.post("/v1/jobs", content=body())
    assert (response.status_code, refusal(response).code) == (413, "body_too_large")
    assert sent <= BODY_MAX_BYTES + 2 * 2**20


async def test_unknown_things_are_404_with_a_code(http: httpx.AsyncClient) -> None:
    for path in ["/v1/jobs/none/1", "/v1/artifacts/none", "/v1/artifacts/..%2fjournal", "/v1/nothing"]:
        response = await http.get(path)
        assert response.status_code == 404, path
        assert refusal(response).code
    assert (await http.post("/v1/jobs/none/1/cancel")).status_code == 404


@pytest.mark.parametrize(
    "query", [{"after": "-1"}, {"after": "x"}, {"limit": "0"}, {"limit": "5000"}, {"wait": "31"}, {"wait": "nan"}]
)
async def test_a_parameter_out_of_range_is_refused_by_name(http: httpx.AsyncClient, query: dict[str, str]) -> None:
    response = await http.get("/v1/events", params=query)
    assert (response.status_code, refusal(response).field) == (422, next(iter(query)))


async def test_a_waiting_reader_wakes_as_something_is_appended(http: httpx.AsyncClient, runtime: LocalRuntime) -> None:
    reading = asyncio.create_task(http.get("/v1/events", params={"after": 0, "wait": 20}))
    await asyncio.sleep(0.1)
    assert not reading.done()
    started = time.monotonic()
    entry = Entry(body=LogWritten(level="info", message="hello"), occurred_at_us=1)
    await runtime.durability.write(Write(entries=(entry,)))
    batch = decode(EventBatch, (await reading).content)
    assert time.monotonic() - started < 2
    assert ([event.body.message for event in batch.events], batch.last_seq) == (["hello"], 1)
    assert batch.journal_id == runtime.journal.journal_id


async def test_a_reader_that_waited_in_vain_gets_an_empty_batch(http: httpx.AsyncClient) -> None:
    batch = decode(EventBatch, (await http.get("/v1/events", params={"wait": 0.05})).content)
    assert (batch.events, batch.last_seq) == ((), 0)


async def test_a_finished_jobs_adapter_is_downloaded_whole(
    http: httpx.AsyncClient, runtime: LocalRuntime, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=1)
    await http.post("/v1/jobs", content=encode(submit))
    await ended(runtime, submit)
    published = next(event.body for event in events_of(runtime, "job") if event.body.type == "artifact")
    response = await http.get(f"/v1/artifacts/{published.artifact_id}")
    assert response.headers["content-type"] == "application/zip"
    assert hashlib.sha256(response.content).hexdigest() == published.sha256


async def test_the_status_tells_bases_utilization_and_work(
    http: httpx.AsyncClient, runtime: LocalRuntime, binding: DatasetBinding
) -> None:
    submit = submit_message(binding, steps=10_000)
    await http.post("/v1/jobs", content=encode(submit))
    while not any(event.body.type == "span" for event in events_of(runtime)):
        await runtime.feed.read(after=runtime.journal.last_seq, limit=1, wait_s=5)
    status = decode(RuntimeStatus, (await http.get("/v1/status")).content)
    assert (status.accepting, status.reason, status.active_jobs) == (True, None, 1)
    assert [base.name for base in status.bases] == ["tiny-qwen3-vl"]
    assert status.bases[0].random_weights
    training, inference, environment = status.services
    assert [service.service for service in status.services] == ["training", "inference", "environment"]
    assert (inference.state, environment.state) == ("idle", "idle")
    assert inference.busy_share == environment.busy_share == 0
    assert 0 < training.busy_share <= 1
    assert training.group_size_mean == 1
    answer = await http.post("/v1/jobs/job/1/cancel")
    assert (answer.status_code, decode(WorkloadStatus, answer.content).state) == (202, "cancelling")
    await ended(runtime, submit, 10)
