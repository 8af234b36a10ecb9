"""A workflow's run that can be stopped from outside, wherever it waits."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from gpu_runtime.inference.errors import ServiceStopped


class StoppableRun:
    """``stop`` ends what ``run`` awaits by cancelling it; ``run`` then returns as if it had come to its end."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.stopped = False

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Raises what ``work`` raises, unless it was stopped."""
        if self.stopped:
            work.close()
            return
        self._task = asyncio.create_task(work)
        try:
            await self._task
        except asyncio.CancelledError:
            if not self.stopped or not self._task.cancelled() or _is_cancelled():
                raise
        except ServiceStopped:  # nobody acts any more: this process is stopping
            if not self.stopped:
                raise

    def stop(self) -> None:
        """A second time does nothing."""
        if not self.stopped:
            self.stopped = True
            if self._task is not None:
                self._task.cancel()


def _is_cancelled() -> bool:
    """Whether the caller itself was cancelled, and must not go on."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
