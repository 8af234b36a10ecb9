"""Payloads read and unpacked before their turn, in threads of their own, while the device is on other work.

Nothing is leased for it and nothing depends on it: whoever is not ready when its turn comes is read then.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from gpu_runtime.training.frames import StagingRoom
from gpu_runtime.training.mounted import MountedJob

Read = Callable[[MountedJob, str], Any]
"""Reads the payload of a partition of a job; ``DeviceStep.read`` is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    job: MountedJob
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    job_key: str
    size: int
    payload: Future[Any]


class ReadAhead:
    """The next partition of every job, oldest first, as far as there is room. Event loop only.

    ``max_bytes`` of all that wait for their turn together; 0: none is read ahead.
    """

    def __init__(self, read: Read, readers: Executor, max_bytes: int) -> None:
        self._read, self._readers, self._room = read, readers, StagingRoom(max_bytes)
        self._max_bytes = max_bytes
        self._wanted: dict[str, _Wanted] = {}  # ready, in their order
        self._held: dict[str, _Held] = {}

    @property
    def live_bytes(self) -> int:
        """Of payloads that are read or being read and were not taken."""
        return self._room.bytes

    def offer(self, job: MountedJob, partition_id: str, size: int) -> None:
        """A partition of so many bytes is ready."""
        if 0 < size <= self._max_bytes:
            self._wanted[partition_id] = _Wanted(job=job, size=size)
            self.fill()

    def take(self, partition_id: str) -> Future[Any] | None:
        """It is leased: what was read of it is the step's from here on; None: nothing was. ``fill`` afterwards."""
        self._wanted.pop(partition_id, None)
        held = self._held.pop(partition_id, None)
        if held is None:
            return None
        self._room.give_back(held.size)
        return held.payload

    def drop(self, partition_id: str) -> None:
        """It has ended: nothing is held for it. A read that has begun keeps its bytes booked until it is over."""
        self._wanted.pop(partition_id, None)
        held = self._held.pop(partition_id, None)
        if held is not None:
            held.payload.cancel()
            held.payload.add_done_callback(lambda _: self._room.give_back(held.size))

    def fill(self) -> None:
        """Begin to read what there is room for, one partition of each job: the others' turn is later."""
        jobs = {held.job_key for held in self._held.values()}
        for partition_id, wanted in list(self._wanted.items()):
            if wanted.job.key in jobs:
                continue
            if not self._room.take(wanted.size):
                return  # it is the next to get room: small ones don't pass a large one for ever
            jobs.add(wanted.job.key)
            del self._wanted[partition_id]
            payload = self._readers.submit(self._read, wanted.job, partition_id)
            self._held[partition_id] = _Held(job_key=wanted.job.key, size=wanted.size, payload=payload)


def found(payload: Future[Any] | None) -> Any | None:
    """What was read ahead. None: nothing was, or it failed, and whoever reads now meets the same or does better.

    Waits for a read that has begun: that is the shorter way.
    """
    if payload is None or payload.cancel() or payload.exception() is not None:
        return None
    return payload.result()
