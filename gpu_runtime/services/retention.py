"""Keeps the journal bounded: events are forgotten when they are old and the control plane has applied them."""

import asyncio
import logging

from gpu_runtime.services.feed import EventFeed
from gpu_runtime.store.errors import StoreError
from gpu_runtime.store.journal import Journal
from gpu_runtime.training.clock import unix_us
from gpu_runtime.training.queue import run_in

DAY_US = 86_400_000_000
_EVERY_S = 600.0
_CHUNK = 1000  # events per transaction: an append waits for one chunk at most
_log = logging.getLogger(__name__)


class EventRetention:
    """``days``: how long an event is kept at least; 0 keeps all. Nothing is forgotten that no reader has gone past."""

    def __init__(self, *, feed: EventFeed, journal: Journal, days: int) -> None:
        self._feed, self._journal, self._days = feed, journal, days

    async def run(self) -> None:
        """Trim now and then, until cancelled."""
        while self._days:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.trim()
            except StoreError as error:
                _log.warning("old events stay for now: %s", error)

    async def trim(self) -> int:
        """Forget everything that may be forgotten now; returns how many events. Raises StoreError."""
        through, before_us = self._feed.acknowledged, unix_us() - self._days * DAY_US
        total = 0
        while trimmed := await run_in(
            None, lambda: self._journal.trim(through=through, before_us=before_us, most=_CHUNK)
        ):
            total += trimmed
        return total
