"""Bringing measured usage to disk while the device works on: one record at a time, and never far behind."""

import asyncio
from collections.abc import Awaitable, Callable

from gpu_runtime.inference.step import PredictOutcome
from gpu_runtime.inference.usage import PredictLedger, PredictRecord
from gpu_runtime.protocol.ids import RequestId
from gpu_runtime.scheduler.accounting import Attribution


class UsageWriter:
    """Event loop only. ``write`` makes a record durable and returns when it is; it tries again by itself."""

    def __init__(
        self, write: Callable[[PredictRecord], Awaitable[object]], *, every_us: int, unwritten_steps_max: int
    ) -> None:
        self._write = write
        self._every_us = every_us
        self._unwritten_steps_max = unwritten_steps_max
        self._ledger = PredictLedger()
        self._writing: asyncio.Task[object] | None = None
        self._started_us = 0  # of the last write

    @property
    def behind(self) -> bool:
        """The journal is so slow, or refuses: no further step until ``settled``."""
        return self._writing is not None and self._ledger.steps >= self._unwritten_steps_max

    def add(self, outcome: PredictOutcome) -> Attribution[RequestId]:
        """Split one step among its requests; it is written with the next record."""
        return self._ledger.add(outcome)

    def due_us(self) -> int | None:
        """When to write; None while nothing is to be written, or a write is in progress."""
        return None if self._writing is not None or not self._ledger.steps else self._started_us + self._every_us

    def write_if_due(self, now_us: int, then: Callable[[], None]) -> None:
        """Start a write; ``then`` is called when it is over. Raises what a writer that gave up raised."""
        if self._writing is not None and self._writing.done():
            writing, self._writing = self._writing, None
            writing.result()
        due_us = self.due_us()
        if due_us is not None and now_us >= due_us and (record := self._ledger.drain()) is not None:
            self._started_us = now_us
            self._writing = asyncio.ensure_future(self._write(record))
            self._writing.add_done_callback(lambda _: then())

    async def settled(self) -> None:
        """Return when no write is in progress."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None

    async def close(self) -> None:
        """Write everything that is left."""
        await self.settled()
        if (record := self._ledger.drain()) is not None:
            await self._write(record)
