"""`/ws/jobs/<id>`: every row once, over any number of reconnects, and nothing for strangers."""

import json
import uuid
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator

from control_plane.asgi import application
from control_plane.live import wakes
from control_plane.live.consumers import JobStream
from gpu_runtime.protocol.messages import LogWritten, MetricsRecorded, WorkloadState
from jobs import notify
from jobs.models import Job
from tenants.models import User
from tests.support.jobs import events_of, make_job, points_of, relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db(transaction=True)

WAIT_S = 5.0


@asynccontextmanager
async def reader(person: Person | None, job_id: Any, query: str = "", origin: str = "http://localhost"):
    """A browser's socket with the person's session."""
    headers = [(b"origin", origin.encode()), (b"host", b"localhost")]
    if person is not None:
        browser = await sync_to_async(person.browser)()
        headers.append((b"cookie", f"sessionid={browser.cookies['sessionid'].value}".encode()))
    socket = WebsocketCommunicator(application, f"/ws/jobs/{job_id}{query}", headers=headers)
    try:
        yield socket
    finally:
        await socket.disconnect()


async def closed_with(person: Person | None, job_id: Any, query: str = "") -> int:
    async with reader(person, job_id, query) as socket:
        connected, _ = await socket.connect(timeout=WAIT_S)
        assert connected
        answer = await socket.receive_output(timeout=WAIT_S)
        assert answer["type"] == "websocket.close"
        return answer["code"]


async def rows_until(socket: WebsocketCommunicator, done: Callable[[list[dict]], bool]) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    while not done(frames):
        frame = json.loads(await socket.receive_from(timeout=WAIT_S))
        if frame["type"] == "rows":
            frames.append(frame)
    return frames


def run(work: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    return sync_to_async(work, thread_sensitive=True)


def write_rows(runtime: InMemoryRuntime, key: tuple[str, int], first: int, last: int) -> None:
    for step in range(first, last + 1):
        runtime.tell(*key, MetricsRecorded(step=step, values={"loss": 1.0 / step, "lr": 1e-4}))
        runtime.tell(*key, LogWritten(level="info", message=str(step)))
    relay_all(runtime)


def told(frames: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """(seq, what) of every row in the order it came."""
    rows = []
    for frame in frames:
        rows += [(event["seq"], event["type"]) for event in frame["events"]]
        rows += [(point["seq"], point["series"]) for point in frame["metrics"]]
    return rows


def in_database(job: Job) -> list[tuple[int, str]]:
    rows = [(event.seq, event.type) for event in events_of(job)]
    return rows + [(point.seq, point.series) for point in points_of(job)]


async def test_a_reader_gets_what_is_there_and_then_what_comes(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = await run(start_job)(alice, runtime)
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        first = await rows_until(socket, lambda frames: len(frames) == 1)
        assert first[0]["job"]["state"] == "starting"
        assert first[0]["job"]["cost"] == {"amount": "0", "currency": "EUR", "lines": []}
        runtime.tell_state(*key, WorkloadState.RUNNING)
        await run(relay_all)(runtime)
        frames = await rows_until(socket, lambda frames: bool(frames) and frames[-1]["job"]["state"] == "running")
        assert frames[-1]["events"][-1]["data"]["state"] == "running"


async def test_a_reader_that_catches_up_gets_the_bill_with_the_last_page(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.selectors.stream._SPAN", 7)
    job, key = await run(start_job)(alice, runtime)
    await run(write_rows)(runtime, key, 1, 10)
    newest = (await run(events_of)(job))[-1].seq
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        frames = await rows_until(socket, lambda frames: bool(frames) and frames[-1]["seq"] >= newest)
    assert ["cost" in frame["job"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert len(frames) > 2


async def test_a_bill_that_was_not_due_follows_though_no_row_does(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStream, "bill_every_s", 0.5)
    monkeypatch.setattr(JobStream, "poll_s", 0.5)
    job, key = await run(start_job)(alice, runtime)
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        await rows_until(socket, lambda frames: len(frames) == 1)
        runtime.train_step([key], 1, busy_us=2000)
        await run(relay_all)(runtime)
        frames = await rows_until(socket, lambda frames: bool(frames) and "cost" in frames[-1]["job"])
        assert frames[-1]["job"]["cost"]["lines"] != []
        assert frames[-1]["job"]["compute_share"] is None  # it has not begun to run
        assert await socket.receive_nothing(timeout=1.5)  # told once


async def test_reconnecting_after_any_frame_leaves_no_gap_and_repeats_nothing(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.selectors.stream._SPAN", 7)
    job, key = await run(start_job)(alice, runtime)
    seen: list[tuple[int, str]] = []
    cursor = 0
    for round_ in range(6):
        await run(write_rows)(runtime, key, 10 * round_ + 1, 10 * round_ + 10)
        async with reader(alice, job.pk, f"?after={cursor}") as socket:
            await socket.connect(timeout=WAIT_S)
            frames = await rows_until(socket, lambda frames: len(frames) == 2)  # leaves before it has everything
        seen += told(frames)
        cursor = frames[-1]["seq"]
    async with reader(alice, job.pk, f"?after={cursor}") as socket:
        await socket.connect(timeout=WAIT_S)
        newest = (await run(events_of)(job))[-1].seq
        seen += told(await rows_until(socket, lambda frames: bool(frames) and frames[-1]["seq"] >= newest))
    assert len(seen) == len(set(seen))
    assert sorted(seen) == sorted(await run(in_database)(job))


async def test_a_lost_wake_costs_only_a_poll(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStream, "poll_s", 0.4)
    monkeypatch.setattr(notify, "wake", lambda newest: False)
    job, key = await run(start_job)(alice, runtime)
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        await rows_until(socket, lambda frames: len(frames) == 1)
        await run(write_rows)(runtime, key, 1, 2)
        frames = await rows_until(socket, lambda frames: len(frames) == 1)
        assert len(frames[0]["metrics"]) == 4


async def test_a_channel_layer_that_is_down_costs_only_a_poll(
    alice: Person, runtime: InMemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __getattr__(self, verb: str) -> Any:
            async def refuse(*args: Any) -> None:
                raise ConnectionRefusedError("no redis")

            return refuse

    monkeypatch.setattr(JobStream, "poll_s", 0.4)
    monkeypatch.setattr(notify, "get_channel_layer", Broken)
    monkeypatch.setattr(wakes, "get_channel_layer", Broken)
    job, key = await run(start_job)(alice, runtime)
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        await rows_until(socket, lambda frames: len(frames) == 1)
        await run(write_rows)(runtime, key, 1, 1)
        assert await rows_until(socket, lambda frames: len(frames) == 1)


async def test_values_that_are_not_finite_arrive_as_null(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = await run(start_job)(alice, runtime)
    runtime.tell(*key, MetricsRecorded(step=1, values={"loss": float("nan")}))
    await run(relay_all)(runtime)
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        (frame,) = await rows_until(socket, lambda frames: len(frames) == 1)
    assert [(point["value"], point["special"]) for point in frame["metrics"]] == [(None, "nan")]


async def test_foreign_missing_and_anonymous_are_closed_alike(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    job = await run(make_job)(alice)
    assert await closed_with(charlie, job.pk) == 4404
    assert await closed_with(charlie, uuid.uuid4()) == 4404
    assert await closed_with(None, job.pk) == 4404


@pytest.mark.parametrize("query", ["?after=x", "?after=-1", "?after=1&after=2", "?since=3"])
async def test_a_cursor_that_is_no_number_is_refused(alice: Person, query: str) -> None:
    job = await run(make_job)(alice)
    assert await closed_with(alice, job.pk, query) == 4400


async def test_a_foreign_page_cannot_open_a_socket(alice: Person) -> None:
    job = await run(make_job)(alice)
    async with reader(alice, job.pk, origin="http://evil.example") as socket:
        connected, _ = await socket.connect(timeout=WAIT_S)
        assert not connected


async def test_an_account_that_was_closed_opens_nothing(alice: Person) -> None:
    job = await run(make_job)(alice)
    async with reader(alice, job.pk) as socket:
        await run(lambda: User.objects.filter(pk=alice.user.pk).update(is_active=False))()
        await socket.connect(timeout=WAIT_S)
        answer = await socket.receive_output(timeout=WAIT_S)
        assert answer["code"] == 4404


async def test_an_idle_stream_is_pinged(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobStream, "ping_s", 0.0)
    monkeypatch.setattr(JobStream, "poll_s", 0.4)
    job = await run(make_job)(alice)
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        frames = [json.loads(await socket.receive_from(timeout=WAIT_S)) for _ in range(2)]
    assert frames[1] == {"type": "ping"}
