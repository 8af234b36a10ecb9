"""Live pages over the real channel layer: wakes arrive through valkey, and kill -9 of it loses no row."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from control_plane.live import wakes
from control_plane.live.consumers import JobStream
from control_plane.supervisor.stack import valkey_binary
from tests.jobs.test_live_stream import WAIT_S, reader, rows_until, run, write_rows
from tests.support.jobs import start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db(transaction=True)


class Valkey:
    """A valkey server on a socket of its own that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "v.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [str(valkey_binary()), "--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        self.process = subprocess.Popen(argv, cwd=self.socket.parent, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.socket.unlink(missing_ok=True)

    async def ready(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while not self.socket.exists():
                await asyncio.sleep(0.02)


@pytest.fixture
def valkey(tmp_path_factory: pytest.TempPathFactory, settings: Any) -> Iterator[Valkey]:
    server = Valkey(tmp_path_factory.mktemp("v"))
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [f"unix://{server.socket}"]},
        }
    }
    server.start()
    yield server
    server.kill()


async def test_a_wake_brings_rows_long_before_the_next_poll(
    alice: Person, runtime: InMemoryRuntime, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStream, "poll_s", 60.0)
    await valkey.ready()
    job, key = await run(start_job)(alice, runtime)
    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        await rows_until(socket, lambda frames: len(frames) == 1)
        await asyncio.sleep(0.5)  # the subscription is made beside the first page
        await run(write_rows)(runtime, key, 1, 1)
        frames = await rows_until(socket, lambda frames: len(frames) == 1)
        assert [point["series"] for point in frames[0]["metrics"]] == ["loss", "lr"]


def losses(frames: list[dict[str, Any]]) -> list[int]:
    """Steps of the loss points in these frames."""
    return [point["step"] for frame in frames for point in frame["metrics"] if point["series"] == "loss"]


async def test_killing_valkey_loses_no_row_and_wakes_come_back_with_it(
    alice: Person, runtime: InMemoryRuntime, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStream, "poll_s", 0.5)
    monkeypatch.setattr(wakes, "RETRY_S", 0.2)
    await valkey.ready()
    job, key = await run(start_job)(alice, runtime)
    steps: list[int] = []

    async def read_step(socket: Any, step: int) -> None:
        await run(write_rows)(runtime, key, step, step)
        frames = await rows_until(socket, lambda frames: step in losses(frames))
        steps.extend(losses(frames))

    async with reader(alice, job.pk) as socket:
        await socket.connect(timeout=WAIT_S)
        await read_step(socket, 1)
        await sync_to_async(valkey.kill)()
        await read_step(socket, 2)
        async with reader(alice, job.pk) as newcomer:
            await newcomer.connect(timeout=WAIT_S)
            await rows_until(newcomer, lambda frames: len(frames) == 1)
        valkey.start()
        await valkey.ready()
        await read_step(socket, 3)
    assert steps == [1, 2, 3]
