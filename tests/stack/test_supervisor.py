"""The supervisor with small real processes."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from control_plane.supervisor.child import Program
from control_plane.supervisor.supervisor import STOP_LIMIT_S, AlreadyRunning, Supervisor, exclusive

FOREVER = "import time\nwhile True: time.sleep(0.05)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\n" + FOREVER


def program(name: str, code: str, ready_when: Path | None = None) -> Program:
    return Program(name=name, argv=(sys.executable, "-c", code), ready_when=ready_when)


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))

    async def wait_for(self, name: str, text: str, limit_s: float = 10) -> None:
        async with asyncio.timeout(limit_s):
            while not any(who == name and text in line for who, line in self.lines):
                await asyncio.sleep(0.02)


async def stopped(task: asyncio.Task) -> float:
    """Seconds until a SIGTERM to ourselves has ended the supervisor."""
    started_s = time.monotonic()
    os.kill(os.getpid(), signal.SIGTERM)
    await task
    return time.monotonic() - started_s


async def test_a_killed_process_is_started_again_and_its_output_is_prefixed(tmp_path):
    log = Log()
    supervisor = Supervisor([program("web", f"print('hello', flush=True)\n{FOREVER}")], write=log)
    task = asyncio.create_task(supervisor.run())
    await log.wait_for("web", "hello")
    first = supervisor.children[0].pid
    os.kill(first, signal.SIGKILL)
    await log.wait_for("supervisor", "web ended with signal SIGKILL")
    async with asyncio.timeout(10):
        while supervisor.children[0].pid in (None, first):
            await asyncio.sleep(0.02)
    assert supervisor.children[0].restarts == 1
    assert await stopped(task) < 2


async def test_a_process_that_ignores_the_signal_is_killed_within_the_limit(tmp_path):
    log = Log()
    supervisor = Supervisor([program("deaf", STUBBORN)], write=log)
    task = asyncio.create_task(supervisor.run())
    await log.wait_for("deaf", "deaf")
    pid = supervisor.children[0].pid
    assert await stopped(task) < STOP_LIMIT_S + 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_next_program_waits_until_the_one_before_is_ready(tmp_path):
    log, ready = Log(), tmp_path / "ready"
    slow = f"import time, pathlib\ntime.sleep(0.5)\nprint('ready', flush=True)\npathlib.Path({str(ready)!r}).touch()\n"
    programs = [program("broker", slow + FOREVER, ready), program("web", f"print('up', flush=True)\n{FOREVER}")]
    task = asyncio.create_task(Supervisor(programs, write=log).run())
    await log.wait_for("web", "up")
    assert [name for name, _ in log.lines if name != "supervisor"] == ["broker", "web"]
    await stopped(task)


def test_one_state_folder_has_one_supervisor(tmp_path):
    with exclusive(tmp_path / "lock"):
        with pytest.raises(AlreadyRunning):
            with exclusive(tmp_path / "lock"):
                pass
    with exclusive(tmp_path / "lock"):
        pass
