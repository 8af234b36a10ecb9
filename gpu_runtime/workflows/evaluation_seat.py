"""One environment of an evaluation: opened when it is needed, metered, opened again when it was lost."""

from dataclasses import dataclass, field

from gpu_runtime.environments.busy import BusyMeter
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.training.clock import unix_us
from gpu_runtime.workflows.evaluation_witness import Witness
from gpu_runtime.workflows.ports import EnvironmentUse


@dataclass(slots=True, kw_only=True)
class EvaluationSeat:
    """``session`` is None while there is none. Leave it with ``close``."""

    spec: SessionSpec
    pool: EnvironmentPool
    witness: Witness
    session: EnvironmentSession | None = None
    _busy: BusyMeter = field(init=False, default_factory=BusyMeter)  # of the session, or of the try to open one
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
        return self.session

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
        """Give the seat back."""
        if self.session is not None:
            await self.session.close()
