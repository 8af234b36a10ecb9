"""Saying why a job stands still: seats are waited for with a reason and a place in the queue."""

import asyncio
from dataclasses import dataclass, field

from gpu_runtime.environments.seats import SeatWait, WaitReason
from gpu_runtime.protocol.messages import LogWritten
from gpu_runtime.workflows.ports import Teller

_REASONS = {
    WaitReason.TENANT_QUOTA: "your own jobs hold as many as you may have",
    WaitReason.ALL_TAKEN: "all are taken",
    WaitReason.BEHIND_OTHERS: "others came first",
}


@dataclass(slots=True, kw_only=True)
class Herald:
    """Tells what happens where nobody can wait until it is written. ``close`` waits for all of it."""

    tell: Teller
    _telling: set[asyncio.Task[None]] = field(init=False, default_factory=set)

    def seats(self, wait: SeatWait) -> None:
        """Environment seats are waited for."""
        self._say(f"waiting for environment seats: {_REASONS[wait.reason]}; place {wait.position} in the queue")

    def rollouts(self, wait: SeatWait) -> None:
        """Leave to start another rollout is waited for."""
        self._say(f"waiting to start a rollout: {_REASONS[wait.reason]}; place {wait.position} in the queue")

    def _say(self, message: str) -> None:
        task = asyncio.ensure_future(self.tell(LogWritten(level="info", message=message)))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """Return when everything is told."""
        while self._telling:
            await asyncio.gather(*self._telling)
