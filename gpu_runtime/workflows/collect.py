"""Playing a planned list of tries over the seats of one session, in lockstep.

All seats decide together, in one request; a seat whose try is over takes the next planned one at the next decision.
Shapes: B environments that wait for a decision, C executed steps of a chunk, A action dimensions.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_runtime.environments.results import ChunkResult, Observation
from gpu_runtime.environments.session import EnvironmentSession
from gpu_runtime.workflows.actor import Actor, Asked
from gpu_runtime.workflows.playing import Playing, Try
from gpu_runtime.workflows.policy_fit import PolicyFit
from gpu_runtime.workflows.reward import NoStepLimit

OnMove = Callable[[Playing, Observation, np.ndarray, ChunkResult], None]
"""Hears of a call: the try, what was there before, the actions [C, A] as sent, what came of them."""


@dataclass(slots=True, kw_only=True)
class Collector:
    """Plays over one session; ``executed`` steps of every chunk, ``stride`` of them in one call.

    ``wants_final``: whether V(final observation) is asked for. ``on_episode`` hears of every try that ended,
    ``on_solved`` of those that luck had solved at the reset: nothing is played there. ``on_call`` is told after every
    call that the environments answered.
    """

    session: EnvironmentSession
    fit: PolicyFit
    actor: Actor
    executed: int
    on_episode: Callable[[Playing], Awaitable[None]]
    on_solved: Callable[[Try], None] = lambda planned: None
    wants_final: Callable[[Playing], bool] = lambda playing: False
    on_call: Callable[[], None] = lambda: None
    on_move: OnMove | None = None
    stride: int | None = None  # None: the whole chunk
    active: dict[int, Playing] = field(init=False, default_factory=dict)
    _starting: dict[int, Try] = field(init=False, default_factory=dict)

    @property
    def unfinished(self) -> list[Try]:
        """What was begun and has not ended: lost when the session is."""
        return [*(playing.planned for playing in self.active.values()), *self._starting.values()]

    async def play(self, tries: deque[Try]) -> None:
        """Until all are played; takes them from the front.

        Raises EnvironmentLost (see ``unfinished``), InferenceError, SchedulerError, NoStepLimit.
        """
        while tries or self.active:
            await self._seat(tries)
            if self.active:
                await self._turn()

    async def _seat(self, tries: deque[Try]) -> None:
        free = [slot for slot in range(self.session.spec.seats) if slot not in self.active]
        self._starting = {slot: tries.popleft() for slot in free[: len(tries)]}
        if not self._starting:
            return
        started = await self.session.reset_some({slot: planned.seed for slot, planned in self._starting.items()})
        self.on_call()
        for slot, start in started.items():
            planned = self._starting.pop(slot)
            if start.solved:
                self.on_solved(planned)
                continue
            self.active[slot] = Playing(
                planned=planned, start=start, observation=start.observation, max_steps=self.session.max_steps
            )

    async def _turn(self) -> None:
        """One decision of every active seat, and its steps."""
        slots = sorted(self.active)
        playing = [self.active[slot] for slot in slots]
        asked = self._asked(playing)
        reply = await self.actor.decide(asked)
        for row, one in enumerate(playing):
            one.decided(reply, row, asked.features[row], asked.states[row])
        chosen_BCA = self.fit.to_environment(reply.actions_BHA[:, : self.executed])
        actions_BCA = np.zeros((self.session.spec.seats, *chosen_BCA.shape[1:]), np.float32)
        actions_BCA[slots] = chosen_BCA
        await self._move(actions_BCA)
        await self._end([slot for slot in slots if self.active[slot].ended])

    async def _move(self, actions_BCA: np.ndarray) -> None:
        stride = self.stride or self.executed
        for first in range(0, self.executed, stride):
            moving = [slot for slot in sorted(self.active) if not self.active[slot].ended]
            if not moving:
                return
            active_B = np.isin(np.arange(len(actions_BCA)), moving)
            part_BCA = actions_BCA[:, first : first + stride]
            results = await self.session.step(part_BCA, active_B)
            self.on_call()
            for slot in moving:
                playing, result = self.active[slot], results[slot]
                assert result is not None, "it was active"
                before = playing.observation
                playing.moved(result)
                if self.on_move is not None:
                    self.on_move(playing, before, part_BCA[slot], result)

    async def _end(self, slots: Sequence[int]) -> None:
        ended = [self.active[slot] for slot in slots]
        wanting = [playing for playing in ended if self.wants_final(playing)]
        if wanting:
            for playing, value in zip(wanting, await self.actor.values(self._asked(wanting)), strict=True):
                playing.final_value = float(value)
        for slot in slots:
            await self.on_episode(self.active.pop(slot))

    def _asked(self, playing: Sequence[Playing]) -> Asked:
        states = [self.fit.state(one.observation) for one in playing]
        passed = [one.passed for one in playing]
        if self.actor.acting.told_progress and None in passed:
            raise NoStepLimit("value.episode_progress needs a step limit: set environment.max_steps")
        return Asked(
            features=[self.fit.feature(one.observation) for one in playing],
            states=[None if state is None else state[0] for state in states],
            seeds=[one.noise for one in playing],
            passed_B=None if None in passed else np.array(passed, np.float32),
        )
