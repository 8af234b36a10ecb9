"""One supervised process: start, prefix its output, restart it when it dies, stop it in time."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_BACKOFF_FIRST_S = 0.2
_BACKOFF_MAX_S = 5.0
_STEADY_S = 10.0  # a process that lived this long starts its next backoff from the beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run. ``ready_when`` is a path that exists once others may start; what others need stops last."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_when: Path | None = None
    stops_last: bool = False


def _die_with_parent() -> None:
    """Runs in the child before exec: a supervisor killed with -9 leaves no orphans (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """Keeps one program running until ``stop``."""

    def __init__(self, program: Program, write: Callable[[str, str], None]) -> None:
        self.program = program
        self.restarts = 0
        self._write = write
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def run(self) -> None:
        """Start and restart until told to stop."""
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping:
            started_s = asyncio.get_running_loop().time()
            status = await self._run_once()
            if self._stopping:
                return
            if asyncio.get_running_loop().time() - started_s > _STEADY_S:
                backoff_s = _BACKOFF_FIRST_S
            self.restarts += 1
            self._write(
                "supervisor", f"{self.program.name} ended with {_describe(status)}; again in {backoff_s:.1f} s"
            )
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    async def _run_once(self) -> int:
        if self.program.ready_when is not None:
            self.program.ready_when.unlink(missing_ok=True)  # left behind by a process killed with -9
        self._process = await asyncio.create_subprocess_exec(
            *self.program.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.program.environment},
            start_new_session=True,
            preexec_fn=_die_with_parent,
            limit=2**20,
        )
        self._write("supervisor", f"{self.program.name} started, process {self._process.pid}")
        if self._stopping:  # told to stop between the decision to start and the start
            self.signal(signal.SIGTERM)
        assert self._process.stdout is not None
        await self._copy_output(self._process.stdout)
        status = await self._process.wait()
        self.signal(signal.SIGKILL)  # what it started (pool workers) must not outlive it
        return status

    async def _copy_output(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line longer than the limit: its start was dropped by asyncio
                continue
            if not line:
                return
            self._write(self.program.name, line.decode(errors="replace").rstrip())

    def begin_stop(self) -> None:
        self._stopping = True
        self.signal(signal.SIGTERM, group=False)

    def signal(self, number: signal.Signals, *, group: bool = True) -> None:
        """Signal the process, or everything it started."""
        if self._process is None or (self._process.returncode is not None and not group):
            return
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self._process.pid, number)


def _describe(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
