"""Making things durable: while that fails, no new work is taken, and the same bytes are tried again."""

import asyncio
import functools
import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gpu_runtime.store.errors import DiskFull, PartitionsFull, StoreError, file_error, storage_error
from gpu_runtime.store.files import free_bytes
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.records import Write
from gpu_runtime.store.signal import Signal

T = TypeVar("T")
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.05, 2.0
_log = logging.getLogger(__name__)


class Durability:
    """No unbilled work, no lost work: what has been measured is kept in memory until it is on disk.

    ``folder``: where everything is stored. ``min_free_bytes``: below this no work is taken.
    """

    def __init__(self, journal: Journal, folder: Path, min_free_bytes: int = 0) -> None:
        self._journal = journal
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._failing: dict[int, StoreError] = {}
        self._probing: asyncio.Task[None] | None = None
        self.changed = Signal()

    @property
    def problem(self) -> StoreError | None:
        """Why no work can be taken now, or None."""
        if self._failing:
            return next(iter(self._failing.values()))
        try:
            free = free_bytes(self._folder)
        except OSError as error:
            return file_error(error, "free space")
        if free < self._min_free_bytes:
            return DiskFull(f"{free} bytes free, {self._min_free_bytes} must stay free")
        return None

    async def write_now(self, write: Write) -> int:
        """Append to the journal or raise StoreError: for callers that can be told "try again later".

        After a failure the journal is probed until it works again, so that an idle runtime shows the trouble too.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.append, write)
        except StoreError as error:
            self._probe_after(error)
            raise

    async def write(self, write: Write) -> int:
        """Append to the journal, trying again until it worked."""
        return await self.persist(functools.partial(self._journal.append, write), self._thread)

    async def persist(
        self, action: Callable[[], T], executor: Executor | None = None, *, unless: Callable[[], bool] = lambda: False
    ) -> T:
        """Run ``action`` in ``executor`` until neither the store nor the file system refuses it.

        PartitionsFull is passed on: room comes back by consumption, not by waiting here. So is any other trouble
        once ``unless()`` says that nobody needs the result.
        """
        token, delay_s = id(action), _FIRST_DELAY_S
        try:
            while True:
                try:
                    return await asyncio.get_running_loop().run_in_executor(executor, action)
                except PartitionsFull:
                    raise
                except Exception as error:
                    trouble = storage_error(error)
                    if trouble is None or unless():
                        raise
                    self._note(token, trouble)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        finally:
            if self._failing.pop(token, None) is not None:
                _log.warning("storage works again")
                self.changed.notify()

    def close(self) -> None:
        """End the journal's thread; a write in progress is finished."""
        if self._probing is not None:
            self._probing.cancel()
        self._thread.shutdown(wait=True)

    def _probe_after(self, error: StoreError) -> None:
        if self._probing is not None and not self._probing.done():
            return
        action = self._journal.probe
        self._note(id(action), error)
        self._probing = asyncio.create_task(self.persist(action, self._thread), name="journal probe")

    def _note(self, token: int, error: StoreError) -> None:
        if token not in self._failing:
            _log.error("no new work until this is over: %s: %s", error.code, error)
        self._failing[token] = error
        self.changed.notify()
