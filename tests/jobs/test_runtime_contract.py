"""One contract for every runtime: the one in memory, the same behind HTTP, and the real gateway process."""

import random
import time
from pathlib import Path

import httpx
import pytest
from pydantic import TypeAdapter

from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.messages import PolicyBinding, SubmitJob, WorkloadState
from jobs.runtime_client import HttpRuntimeClient, RuntimeRefused, RuntimeUnreachable
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.memory_transport import gateway_transport
from tests.support.policy_jobs import make_policy_spec
from tests.support.runtime_contract import RUNTIMES, TOKEN, Served, fresh_job


def test_status_names_the_journal_and_the_resident_bases(served: Served) -> None:
    status = served.client.status()
    assert status.journal_id
    assert {service.service for service in status.services} == {"training", "inference", "environment"}
    assert status.accepting
    assert [base.name for base in status.bases] == ["tiny-qwen3-vl"]
    assert status.bases[0].random_weights


def test_submitting_twice_is_one_job(served: Served, request: pytest.FixtureRequest) -> None:
    message = served.submit(fresh_job(request))
    first = served.client.submit(message)
    assert (first.job_id, first.attempt) == (message.job_id, 1)
    served.client.submit(message)
    batch = served.client.events(after=0, limit=1000, wait_s=0)
    accepted = [
        event
        for event in batch.events
        if event.job_id == message.job_id and getattr(event.body, "state", None) == WorkloadState.ACCEPTED
    ]
    assert len(accepted) == 1


def test_the_same_attempt_with_another_body_is_a_conflict(served: Served, request: pytest.FixtureRequest) -> None:
    job_id = fresh_job(request)
    served.client.submit(served.submit(job_id))
    with pytest.raises(RuntimeRefused) as refused:
        served.client.submit(served.submit(job_id, name="another name"))
    assert refused.value.status == 409
    assert refused.value.about_the_request


def test_an_unknown_attempt_has_no_status_and_cannot_be_cancelled(
    served: Served, request: pytest.FixtureRequest
) -> None:
    job_id = fresh_job(request)
    assert served.client.job_status(job_id, 1) is None
    assert served.client.cancel(job_id, 1) is None
    served.client.submit(served.submit(job_id))
    assert served.client.job_status(job_id, 1) is not None
    assert served.client.job_status(job_id, 2) is None


def test_cancelling_again_is_harmless(served: Served, request: pytest.FixtureRequest) -> None:
    job_id = fresh_job(request)
    served.client.submit(served.submit(job_id))
    stopping = {WorkloadState.CANCELLING, WorkloadState.CANCELLED, WorkloadState.FAILED}
    deadline_s = time.monotonic() + 10
    for _ in range(2):
        assert served.client.cancel(job_id, 1) is not None
    while served.client.job_status(job_id, 1).state not in stopping:
        assert time.monotonic() < deadline_s, "the cancel had no effect"
        time.sleep(0.05)


def test_the_journal_is_read_in_pieces_and_in_order(served: Served, request: pytest.FixtureRequest) -> None:
    job_id = fresh_job(request)
    for attempt in (1, 2, 3):
        served.client.submit(served.submit(job_id, attempt))
        served.client.cancel(job_id, attempt)
    journal_id, after, seen = served.client.status().journal_id, 0, []
    while True:
        batch = served.client.events(after=after, limit=2, wait_s=0)
        assert batch.journal_id == journal_id
        assert len(batch.events) <= 2
        if not batch.events:
            break
        seen += [event.seq for event in batch.events]
        after = seen[-1]
    assert seen == sorted(set(seen))
    assert len(seen) >= 3


def test_every_job_entry_names_its_tenant_and_attempt(served: Served, request: pytest.FixtureRequest) -> None:
    message = served.submit(fresh_job(request), 7)
    served.client.submit(message)
    events = [e for e in served.client.events(after=0, limit=1000, wait_s=0).events if e.job_id == message.job_id]
    assert {(event.tenant_id, event.attempt) for event in events} == {(message.tenant_id, 7)}


def test_waiting_for_an_entry_that_does_not_come_ends_in_time(served: Served) -> None:
    started_s = time.monotonic()
    batch = served.client.events(after=10**9, limit=10, wait_s=0.3)
    assert batch.events == ()
    assert time.monotonic() - started_s < 5


def test_an_unknown_artifact_is_refused(served: Served) -> None:
    with pytest.raises(RuntimeRefused) as refused:
        served.client.artifact("no-such-artifact")
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(None, None, slice(None)), (0, 0, slice(1)), (500, 99_999, slice(500, 100_000))]
)
def test_a_published_file_is_handed_out_whole_or_in_part(
    served: Served, first: int | None, last: int | None, expected: slice
) -> None:
    content = random.Random(1).randbytes(200_000)
    served.publish("film-1", content)
    stream = served.client.artifact("film-1", first=first, last=last)
    assert b"".join(stream.chunks) == content[expected]
    assert stream.is_part == (first is not None)
    assert stream.size_bytes == len(content[expected])
    stream.close()


@pytest.mark.parametrize("kind", ["rl", "evaluation", "rollout"])
def test_a_policy_the_runtime_does_not_have_is_a_fault_of_the_request(
    served: Served, request: pytest.FixtureRequest, kind: str
) -> None:
    message = SubmitJob(
        job_id=fresh_job(request),
        attempt=1,
        tenant_id="11111111-1111-4111-8111-111111111111",
        spec=TypeAdapter(JobSpec).validate_python(make_policy_spec(kind, "adapter")),
        policy=PolicyBinding(artifact_id="no-such-adapter", sha256="0" * 64, base_model="tiny-qwen3-vl"),
    )
    with pytest.raises(RuntimeRefused) as refused:
        served.client.submit(message)
    assert refused.value.code == "policy_missing"
    assert refused.value.about_the_request
    assert "'no-such-adapter'" in refused.value.message
    assert served.client.job_status(message.job_id, 1) is None


@pytest.mark.parametrize("where", [name for name in RUNTIMES if name != "memory"])
def test_a_wrong_token_is_refused_and_is_no_fault_of_the_request(where: str, request: pytest.FixtureRequest) -> None:
    if where == "gateway":
        client = HttpRuntimeClient(request.getfixturevalue("gateway").url, "wrong")
    else:
        transport = gateway_transport(InMemoryRuntime(), token=TOKEN)
        client = HttpRuntimeClient("http://runtime", "wrong", transport=transport)
    with pytest.raises(RuntimeRefused) as refused:
        client.status()
    assert refused.value.status == 401
    assert not refused.value.about_the_request


def test_nobody_at_the_socket_is_certainly_not_delivered(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnreachable) as unreachable:
        HttpRuntimeClient(f"unix://{tmp_path / 'nobody'}", TOKEN).status()
    assert not unreachable.value.maybe_delivered


def test_an_answer_that_does_not_come_may_have_been_delivered() -> None:
    def time_out(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("too slow", request=request)

    client = HttpRuntimeClient("http://runtime", TOKEN, transport=httpx.MockTransport(time_out))
    with pytest.raises(RuntimeUnreachable) as unreachable:
        client.status()
    assert unreachable.value.maybe_delivered


def test_a_connection_the_gateway_closed_while_idle_is_replaced_without_a_word() -> None:
    runtime, calls = InMemoryRuntime(), 0

    def closed_at_first(request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise httpx.RemoteProtocolError("server disconnected", request=request)
        return gateway_transport(runtime, token=TOKEN).handle_request(request)

    client = HttpRuntimeClient("http://runtime", TOKEN, transport=httpx.MockTransport(closed_at_first))
    assert client.status().journal_id == runtime.journal_id
    assert calls == 2


def test_an_answer_that_is_no_message_is_refused_by_name() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=b"<html>"))
    with pytest.raises(RuntimeRefused, match="RuntimeStatus"):
        HttpRuntimeClient("http://runtime", TOKEN, transport=transport).status()


def test_an_address_of_an_unknown_kind_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="unix://PATH"):
        HttpRuntimeClient("ftp://runtime", TOKEN)
