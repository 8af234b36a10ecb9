"""One environment of an evaluation: opened when it is needed, metered, opened again when it was lost."""

import time
from dataclasses import dataclass, field

from gpu_runtime.environments.busy import BusyMeter
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.training.clock import unix_us
from gpu_runtime.workflows.evaluation_witness import Witness
from gpu_runtime.workflows.ports import EnvironmentUse

TURN_S = 30.0
"""How long a seat is kept though others wait: starting a simulator costs up to 20 s, a long evaluation takes hours."""


@dataclass(slots=True, kw_only=True)
class EvaluationSeat:
    """``session`` is None while there is none. Leave it with ``close``."""

    spec: SessionSpec
    pool: EnvironmentPool
    witness: Witness
    session: EnvironmentSession | None = None
    _busy: BusyMeter = field(init=False, default_factory=BusyMeter)  # of the session, or of the try to open one
    _opened_s: float = field(init=False, default=0.0)
    _since_us: int = field(init=False, default_factory=unix_us)
    _told_steps: int = field(init=False, default=0)
    _told_us: int = field(init=False, default=0)

    async def ready(self) -> EnvironmentSession:
        """A session that is well. Raises what opening one raises."""
        if self.session is not None and self.session.lost is None:
            return self.session
        self.session, self._busy = None, self.pool.make_meter()
        self._since_us = unix_us()
        self._told_steps = self._told_us = 0
        self.session = await self.pool.open(self.spec, on_wait=self.witness.waits, busy=self._busy)
        self._opened_s = time.monotonic()
        return self.session

    async def become(self, spec: SessionSpec) -> None:
        """From now on ``spec`` is played in; a session of another kind is given back, the next episode queues up."""
        if spec != self.spec:
            await self.close()
            self.spec = spec

    async def between_episodes(self) -> None:
        """Whoever waits for seats gets this one now and then; the next episode queues up for another."""
        if time.monotonic() - self._opened_s >= TURN_S and self.pool.seats_are_wanted(self.spec.tenant_id):
            await self.close()

    async def tell(self, *, step: int, work: str, reason: str | None) -> None:
        """Tell what was used since the last time, in vain or not."""
        total_steps = 0 if self.session is None else self.session.steps
        steps, busy_us = total_steps - self._told_steps, self._busy.calls_us - self._told_us
        if not steps and not busy_us:
            return
        since_us, self._since_us = self._since_us, unix_us()
        self._told_steps, self._told_us = total_steps, self._told_us + busy_us
        use = EnvironmentUse(
            steps=steps, busy_us=busy_us, started_at_us=since_us, seats=1, step=step, work=work, reason=reason
        )
        await self.witness.used(use)

    async def close(self) -> None:
        """Give the seat back; what was used is told before."""
        if self.session is not None:
            await self.session.close()
            self.session = None
