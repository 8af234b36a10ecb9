"""Planned tries in as many sessions as it takes: those that a lost environment held are played again."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gpu_runtime.environments.base import EnvironmentKind, StateKind
from gpu_runtime.environments.errors import EnvironmentLost, LostReason
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.models.policy import Policy
from gpu_runtime.protocol.environment_spec import EnvironmentSpec
from gpu_runtime.workflows.actor import Actor
from gpu_runtime.workflows.collect import Collector, OnMove
from gpu_runtime.workflows.environment_use import SessionUse, Used, UseTeller
from gpu_runtime.workflows.failures import ENVIRONMENT_LOST, survive
from gpu_runtime.workflows.playing import Playing, Try
from gpu_runtime.workflows.policy_fit import PolicyFit, kind_for
from gpu_runtime.workflows.ports import Teller
from gpu_runtime.workflows.rl_plan import again
from gpu_runtime.workflows.waiting import Herald


def environment_kind(policy: Policy, environment: EnvironmentSpec) -> EnvironmentKind:
    """The task as this policy sees it. Raises SchemaMismatch."""
    state = StateKind(environment.state)
    return kind_for(policy, environment.id, state, environment.control_mode, environment.cameras)


@dataclass(slots=True, kw_only=True)
class Tour:
    """Some tries of one policy; ``ended`` and ``solved`` are what became of them. ``session`` says what to open, hooks
    are those of ``Collector``; ``on_lost`` hears of tries that are played again.

    ``lost`` counts those, ``env_steps`` includes theirs; ``losses`` are sessions in a row.
    """

    pool: EnvironmentPool
    session: SessionSpec
    policy: Policy
    actor: Actor
    executed: int
    use: UseTeller
    tell: Teller
    on_episode: Callable[[Playing], Awaitable[None]] | None = None
    on_lost: Callable[[Try], None] = lambda planned: None
    wants_final: Callable[[Playing], bool] = lambda playing: False
    on_move: OnMove | None = None
    stride: int | None = None
    ended: list[Playing] = field(init=False, default_factory=list)
    solved: list[Try] = field(init=False, default_factory=list)
    lost: int = field(init=False, default=0)
    losses: int = field(init=False, default=0)
    env_steps: int = field(init=False, default=0)
    _kept: Used = field(init=False, default_factory=Used)

    async def play(self, tries: deque[Try]) -> None:
        """Until every try has ended. What was played is told to the meter, however this ends.

        Raises EnvironmentLost when the third session in a row is lost; SimulatorError, InferenceError, SchedulerError.
        """
        herald = Herald(tell=self.tell)
        try:
            while tries:
                try:
                    await self._one_session(tries, herald)
                except EnvironmentLost as error:
                    await self._survive(error)
        finally:
            kept, self._kept = self._kept, Used()
            await self.use.tell(kept)
            await herald.close()

    async def _one_session(self, tries: deque[Try], herald: Herald) -> None:
        async with await self._open(herald) as session:
            use, self.use.processes = SessionUse(session=session), len(session.processes)
            collector = Collector(
                session=session,
                fit=PolicyFit.of(self.policy, session.schema, self.session.kind.cameras),
                actor=self.actor,
                executed=self.executed,
                on_episode=self._end,
                on_solved=self.solved.append,
                wants_final=self.wants_final,
                on_call=use.called,
                on_move=self.on_move,
                stride=self.stride,
            )
            try:
                await collector.play(tries)
            except EnvironmentLost:
                await self._lose(collector, tries, use)
                raise
            finally:
                if session.lost is None or session.lost.reason is LostReason.CANCELLED:
                    self._keep(Used(steps=session.steps, busy_us=session.busy.calls_us))

    async def _open(self, herald: Herald) -> EnvironmentSession:
        """Time that was spent on a session which did not open is the platform's loss."""
        busy = self.pool.make_meter()
        try:
            return await self.pool.open(self.session, on_wait=herald.seats, busy=busy)
        except BaseException:
            await self.use.tell(Used(busy_us=busy.calls_us), reason=ENVIRONMENT_LOST)
            raise

    async def _lose(self, collector: Collector, tries: deque[Try], use: SessionUse) -> None:
        """Put what was begun back to the front, with other noise; its steps and chunks are the platform's loss."""
        lost = collector.unfinished
        for planned in lost:
            self.on_lost(planned)
        self.lost += len(lost)
        self.actor.owed.chunks += sum(len(playing.taken) for playing in collector.active.values())
        tries.extendleft(reversed(again(lost, self.lost)))
        kept, wasted = use.split(sum(playing.steps for playing in collector.active.values()))
        self._keep(kept)
        self.env_steps += wasted.steps
        await self.use.tell(wasted, reason=ENVIRONMENT_LOST)

    async def _end(self, playing: Playing) -> None:
        self.ended.append(playing)
        if self.on_episode is not None:
            await self.on_episode(playing)

    def _keep(self, used: Used) -> None:
        self._kept += used
        self.env_steps += used.steps

    async def _survive(self, error: EnvironmentLost) -> None:
        self.losses += 1
        await survive(error, losses=self.losses, tell=self.tell, then="its tries are played again")
