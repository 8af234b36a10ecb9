"""Runs all programs of a stack until a signal, then stops them together within the time limit."""

import asyncio
import contextlib
import fcntl
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from control_plane.supervisor.child import Child, Program

STOP_LIMIT_S = 3.2  # all of it must fit into five seconds
STOP_LAST_LIMIT_S = 0.8
_READY_LIMIT_S = 20.0


class AlreadyRunning(RuntimeError):
    """Another supervisor uses this state folder."""


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """One supervisor per state folder, for as long as this is open. Raises AlreadyRunning."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"another supervisor holds {lock}") from None
        yield


class Supervisor:
    """Owns the children of one state folder."""

    def __init__(self, programs: Sequence[Program], *, write: Callable[[str, str], None]) -> None:
        self.children = [Child(program, write) for program in programs]
        self._write = write
        self._stop = asyncio.Event()

    async def run(self, on_started: Callable[[], None] = lambda: None) -> None:
        """Start everything in order, keep it running, return after a stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        tasks = []
        for child in self.children:
            tasks.append(asyncio.create_task(child.run()))
            await self._wait_until_ready(child.program)
        on_started()
        await self._stop.wait()
        await self._stop_all(tasks)

    async def _wait_until_ready(self, program: Program) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _READY_LIMIT_S
        while program.ready_when is not None and not program.ready_when.exists() and not self._stop.is_set():
            if loop.time() > deadline_s:
                self._write("supervisor", f"{program.name} is not ready after {_READY_LIMIT_S:.0f} s, going on")
                return
            await asyncio.sleep(0.02)

    async def _stop_all(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Everybody at once, then those the others needed while they stopped."""
        self._write("supervisor", "stopping")
        running = dict(zip(self.children, tasks, strict=True))
        for last, limit_s in ((False, STOP_LIMIT_S), (True, STOP_LAST_LIMIT_S)):
            await self._stop_some({c: t for c, t in running.items() if c.program.stops_last == last}, limit_s)
        self._write("supervisor", "stopped")

    async def _stop_some(self, running: dict[Child, "asyncio.Task[None]"], limit_s: float) -> None:
        if not running:
            return
        for child in running:
            child.begin_stop()
        _, late = await asyncio.wait(running.values(), timeout=limit_s)
        for child, task in running.items():
            if task in late:
                self._write("supervisor", f"{child.program.name} did not stop within {limit_s:g} s and is killed")
            child.signal(signal.SIGKILL)  # and whatever it left behind
        if late:
            await asyncio.wait(late, timeout=0.3)
