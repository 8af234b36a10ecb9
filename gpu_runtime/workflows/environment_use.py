"""What a session's environments did, as it is told for bills: once each, and apart where nobody pays."""

from dataclasses import dataclass, field

from gpu_runtime.environments.session import EnvironmentSession
from gpu_runtime.training.clock import unix_us
from gpu_runtime.workflows.ports import EnvironmentMeter, EnvironmentUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Steps, and microseconds of calls added up."""

    steps: int = 0
    busy_us: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(steps=self.steps + other.steps, busy_us=self.busy_us + other.busy_us)


@dataclass(slots=True, kw_only=True)
class SessionUse:
    """Splits what one session did. ``called`` is to be told after every call that was answered."""

    session: EnvironmentSession
    _answered_us: int = field(init=False, default=0)

    def called(self) -> None:
        self._answered_us = self.session.busy.calls_us

    def split(self, lost_steps: int) -> tuple[Used, Used]:
        """Of a session that was lost: (what counts, what was lost with ``lost_steps`` of unfinished tries). Once.

        A call that was never answered is lost time; what was answered is divided by steps.
        """
        steps, total_us = self.session.steps, self.session.busy.calls_us
        kept_steps = steps - lost_steps
        kept = Used(steps=kept_steps, busy_us=self._answered_us * kept_steps // steps if kept_steps else 0)
        return kept, Used(steps=lost_steps, busy_us=total_us - kept.busy_us)


@dataclass(slots=True, kw_only=True)
class UseTeller:
    """Tells the use of one piece of work. ``reason``: why nothing of it is billed."""

    meter: EnvironmentMeter
    work: str
    step: int
    seats: int
    reason: str | None = None
    processes: int = 1  # of the session that was opened last
    started_at_us: int = field(init=False, default_factory=unix_us)

    async def tell(self, used: Used, *, reason: str | None = None) -> None:
        """Nothing is told of nothing."""
        if used.steps or used.busy_us:
            await self.meter(
                EnvironmentUse(
                    steps=used.steps,
                    busy_us=used.busy_us,
                    started_at_us=self.started_at_us,
                    seats=self.seats,
                    processes=self.processes,
                    step=self.step,
                    work=self.work,
                    reason=self.reason or reason,
                )
            )
