"""The parent's side of one environment process: calls with deadlines, a memory bound, and no mercy.

Shapes: N slots called, C actions of a chunk, A action dimensions.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpu_runtime.environments import errors
from gpu_runtime.environments.base import EnvironmentKind
from gpu_runtime.environments.busy import BusyMeter
from gpu_runtime.environments.errors import EnvironmentLost, LostReason
from gpu_runtime.environments.frames import receive, to_frame
from gpu_runtime.environments.results import ChunkResult, Reset, read_chunk, read_reset
from gpu_runtime.environments.slot import TryRules
from gpu_runtime.protocol.schema import DatasetSchema
from gpu_runtime.protocol.wire import WireError

_READ_AHEAD_BYTES = 2**20
_MEMORY_POLL_S = 0.2
_END_WITHIN_S = 5.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_REFUSALS: dict[str, type[errors.SimulatorError]] = {
    kind.__name__: kind
    for kind in (
        errors.SimulatorError,
        errors.UnknownEnvironment,
        errors.SimulatorMissing,
        errors.UnknownCamera,
        errors.UnknownOption,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a process says of its environments; ``max_steps``: where they cut a try off, None: nowhere."""

    schema: DatasetSchema
    max_steps: int | None


class EnvironmentProcess:
    """One child with slots of one kind. After EnvironmentLost, or a call that was cancelled, it is dead."""

    def __init__(
        self,
        kind: EnvironmentKind,
        *,
        families: Mapping[str, str],
        vector_device: str | None = None,
        resident_bytes_max: int,
        meter: BusyMeter,
    ) -> None:
        self.kind = kind
        self.vector_device = vector_device  # where its worlds are one environment; None: each is one of its own
        self.meter = meter  # of whoever uses it at present
        self._families, self._resident_bytes_max = dict(families), resident_bytes_max
        self._opened: Opened | None = None
        self._given_up = False
        self._channel, theirs = socket.socketpair()
        with theirs:
            # On the event loop's own thread: the child is killed when the thread that started it ends.
            self._child = subprocess.Popen(
                [sys.executable, "-m", "gpu_runtime.environments.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,  # a simulator that asks whether to download something gets no answer
                env=_environment(),
                start_new_session=True,
            )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def usable(self) -> bool:
        """Opened, alive, and not given up."""
        return self._opened is not None and not self._given_up and self.alive

    @property
    def resident_bytes(self) -> int:
        """Memory in use; 0 where the system does not say."""
        try:
            with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            return 0

    async def open(self, slots: int, rules: TryRules, *, deadline_s: float) -> Opened:
        """Have at least ``slots`` environments. Raises SimulatorError (refused), EnvironmentLost."""
        message = {
            "call": "open",
            "slots": slots,
            "kind": asdict(self.kind),
            "rules": asdict(rules),
            "families": self._families,
            "vector_device": self.vector_device,
        }
        with self._fatal():
            result = await self._call(message, deadline_s)
            self._opened = _read_opened(result)
            return self._opened

    async def reset(self, seeds: Sequence[tuple[int, int]], *, deadline_s: float) -> list[Reset]:
        """Start new tries: (slot, seed) each. Raises EnvironmentLost."""
        with self._fatal():
            message = {"call": "reset", "seeds": [list(pair) for pair in seeds]}
            replies = await self._call_slots(message, len(seeds), deadline_s)
            return [read_reset(reply, self._known_schema) for reply in replies]

    async def step(self, slots: Sequence[int], actions_NCA: np.ndarray, *, deadline_s: float) -> list[ChunkResult]:
        """One chunk for each of ``slots``. Raises EnvironmentLost."""
        with self._fatal():
            message = {"call": "step", "slots": list(slots), "actions": actions_NCA}
            replies = await self._call_slots(message, len(slots), deadline_s)
            return [read_chunk(reply, self._known_schema, actions_NCA.shape[1]) for reply in replies]

    @property
    def _known_schema(self) -> DatasetSchema:
        assert self._opened is not None, "open comes first"
        return self._opened.schema

    async def _call_slots(self, message: dict[str, Any], count: int, deadline_s: float) -> list[Any]:
        replies = await self._call(message, deadline_s)
        if not isinstance(replies, list) or len(replies) != count:
            raise EnvironmentLost(LostReason.MALFORMED, f"{message['call']} of {count} slots was answered otherwise")
        return replies

    @contextlib.contextmanager
    def _fatal(self) -> Iterator[None]:
        """Whatever goes wrong in a call, a cancelled one included, leaves the child in an unknown state: kill it."""
        try:
            with self.meter.running():
                yield
        except BaseException:
            self.kill()
            raise

    async def _call(self, message: dict[str, Any], deadline_s: float) -> Any:
        try:
            reply = await self._exchange(message, deadline_s)
        except WireError as error:
            raise EnvironmentLost(LostReason.MALFORMED, str(error)) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EnvironmentLost(LostReason.CRASHED, await self._ending()) from error
        match reply:
            case {"result": result}:
                return result
            case {"refused": str(name), "detail": str(detail)} if message["call"] == "open" and name in _REFUSALS:
                raise _REFUSALS[name](detail)
            case {"failed": str(detail)} | {"refused": str(), "detail": str(detail)}:
                raise EnvironmentLost(LostReason.FAILED, detail)
        raise EnvironmentLost(LostReason.MALFORMED, f"a reply with {sorted(reply)}")

    async def _exchange(self, message: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._channel, limit=_READ_AHEAD_BYTES)
        reader, writer = self._streams
        writer.write(to_frame(message))  # never drained: a child that does not read must not hold the deadline up
        until_s = time.monotonic() + deadline_s
        reading = asyncio.create_task(receive(reader))
        try:
            while not reading.done():
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise EnvironmentLost(LostReason.DEADLINE, f"{message['call']} took more than {deadline_s:g} s")
                await asyncio.wait({reading}, timeout=min(left_s, _MEMORY_POLL_S))
                self._check_memory()
            return reading.result()
        finally:
            reading.cancel()

    def _check_memory(self) -> None:
        resident = self.resident_bytes
        if resident > self._resident_bytes_max:
            detail = f"{resident // 2**20} MiB resident; at most {self._resident_bytes_max // 2**20} are allowed"
            raise EnvironmentLost(LostReason.MEMORY, detail)

    async def _ending(self) -> str:
        """How the child ended: the channel is closed before its status can be read."""
        try:
            status = await asyncio.to_thread(self._child.wait, _END_WITHIN_S)
        except subprocess.TimeoutExpired:
            return "the process closed its channel"
        if status < 0:
            return f"the process ended by signal {-status} ({signal.Signals(-status).name})"
        return f"the process ended with status {status}"

    def kill(self) -> None:
        """End the child and what it started, at once; a second time changes nothing."""
        self._given_up = True
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._channel.close()

    async def reap(self) -> None:
        """Kill, and wait until the system has forgotten the child."""
        self.kill()
        await asyncio.to_thread(self._child.wait)


def _read_opened(result: Any) -> Opened:
    if not isinstance(result, dict) or set(result) != {"schema", "max_steps"}:
        raise EnvironmentLost(LostReason.MALFORMED, "the answer to open is no description")
    max_steps = result["max_steps"]
    if max_steps is not None and (type(max_steps) is not int or max_steps < 1):
        raise EnvironmentLost(LostReason.MALFORMED, f"max_steps is {max_steps!r}")
    try:
        return Opened(schema=DatasetSchema.model_validate(result["schema"]), max_steps=max_steps)
    except ValueError as error:
        raise EnvironmentLost(LostReason.MALFORMED, f"schema: {error}") from error


def _environment() -> dict[str, str]:
    """The runtime's own variables, without its secrets; simulators compute on one thread each."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JOYNEXUS_")}
    return kept | {"OMP_NUM_THREADS": "1"}
