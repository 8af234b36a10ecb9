"""Long polls on the journal: a reader waits until there is something after its cursor."""

import asyncio

from gpu_runtime.protocol.messages import EventBatch
from gpu_runtime.services.errors import Gone
from gpu_runtime.store.errors import EventsTrimmed
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.signal import Signal
from gpu_runtime.training.queue import run_in

LIMIT_MAX = 1000
WAIT_MAX_S = 30.0


class EventFeed:
    """Create on the event loop that will serve the readers."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._appended = Signal()
        self._closed = False
        self._acknowledged = 0
        loop = asyncio.get_running_loop()

        def appended(_: int) -> None:
            loop.call_soon_threadsafe(self._appended.notify)

        journal.on_append(appended)

    @property
    def acknowledged(self) -> int:
        """Highest cursor a reader came back with: whoever asks for what follows has made durable what came before."""
        return self._acknowledged

    async def read(self, *, after: int, limit: int, wait_s: float) -> EventBatch:
        """Events after the cursor; waits up to ``wait_s`` for the first one, and wakes as it is appended.

        Raises Gone when events after the cursor were forgotten.
        """
        if after <= self._journal.last_seq:  # else it is a cursor of another journal
            self._acknowledged = max(self._acknowledged, after)
        deadline = asyncio.get_running_loop().time() + wait_s
        while self._journal.last_seq <= after and not self._closed:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or not await self._appended.wait(left_s):
                break
        last_seq = self._journal.last_seq
        try:
            events = await run_in(None, lambda: self._journal.read(after=after, limit=limit))
        except EventsTrimmed as error:
            raise Gone(error.code, str(error), "after") from error
        return EventBatch(journal_id=self._journal.journal_id, events=tuple(events), last_seq=last_seq)

    def close(self) -> None:
        """Let every waiting reader go."""
        self._closed = True
        self._appended.notify()
