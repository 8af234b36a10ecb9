"""Waking whoever waits on the event loop; a wake-up says "look again", never what changed."""

import asyncio


class Signal:
    """``wait`` returns at the next ``notify``. Check your condition and call ``wait`` without an await in between."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake every waiter. On the event loop only."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """True when notified, False after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
