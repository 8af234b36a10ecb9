"""One tenant's environments, as a rollout or an evaluation uses them: reset, then chunks of actions.

Shapes: B environments of the session, C actions of a chunk, A action dimensions.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, cast

import numpy as np

from gpu_runtime.environments.base import EnvironmentKind
from gpu_runtime.environments.busy import BusyMeter
from gpu_runtime.environments.errors import EnvironmentLost, LostReason, SessionError, WrongAction
from gpu_runtime.environments.process import EnvironmentProcess, Opened
from gpu_runtime.environments.results import ChunkResult, Reset
from gpu_runtime.environments.slot import TryRules

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """What a tenant asks for: ``seats`` environments of one kind, in ``processes`` (None: as the pool thinks fit)."""

    tenant_id: str
    kind: EnvironmentKind
    seats: int
    processes: int | None = None
    rules: TryRules = field(default_factory=TryRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a call may take. Opening includes the first picture, which compiles shaders for up to 20 s."""

    open_s: float = 180.0
    reset_s: float = 60.0
    step_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """The session's environments from ``first`` on, ``count`` of them, live in one process."""

    process: EnvironmentProcess
    first: int
    count: int


class EnvironmentSession:
    """B environments, numbered from 0. A lost process ends the session: every call raises EnvironmentLost from then.

    Calls of one session run one at a time. ``busy`` measures them. Leave it with ``close`` (or ``async with``).
    """

    def __init__(
        self,
        spec: SessionSpec,
        opened: Opened,
        parts: Sequence[Part],
        *,
        deadlines: Deadlines,
        busy: BusyMeter,
        on_end: Callable[["EnvironmentSession"], None],
    ) -> None:
        self.spec, self.schema, self.busy = spec, opened.schema, busy
        bounds = [bound for bound in (spec.rules.steps_max, opened.max_steps) if bound is not None]
        self.max_steps = min(bounds, default=None)  # of one try; None: nothing cuts it off
        self.processes = tuple(part.process for part in parts)
        self.steps = 0  # of all environments added up
        self._parts, self._deadlines, self._on_end = tuple(parts), deadlines, on_end
        self._running = [False] * spec.seats
        self._lost: EnvironmentLost | None = None
        self._closed = False
        self._turn = asyncio.Lock()

    async def reset(self, seeds: Sequence[int]) -> list[Reset]:
        """Start a new try in every environment, [B]. Raises SessionError, EnvironmentLost."""
        if len(seeds) != self.spec.seats:
            raise SessionError(f"seeds: {len(seeds)} for {self.spec.seats} environments; allowed: one for each")
        started = await self.reset_some(dict(enumerate(seeds)))
        return [started[slot] for slot in range(self.spec.seats)]

    async def reset_some(self, seeds: Mapping[int, int]) -> dict[int, Reset]:
        """Start new tries in some environments, by number. Raises SessionError, EnvironmentLost."""
        for slot, seed in seeds.items():
            if not 0 <= slot < self.spec.seats:
                raise SessionError(f"slot {slot}; allowed: 0 to {self.spec.seats - 1}")
            if not 0 <= seed < 2**31:
                raise SessionError(f"seed {seed} of slot {slot}; allowed: 0 to {2**31 - 1}")

        async def of(part: Part, slots: list[int]) -> list[Reset]:
            pairs = [(slot - part.first, int(seeds[slot])) for slot in slots]
            return await part.process.reset(pairs, deadline_s=self._deadlines.reset_s)

        started = await self._everywhere(sorted(seeds), of)
        for slot in started:
            self._running[slot] = True
        return started

    async def step(self, actions_BCA: np.ndarray, active_B: np.ndarray | None = None) -> list[ChunkResult | None]:
        """One chunk in every active environment (all by default); None for the others.

        Raises WrongAction and SessionError (nothing happened), EnvironmentLost.
        """
        self._refuse_if_over()
        active = np.ones(self.spec.seats, bool) if active_B is None else np.asarray(active_B)
        actions = self._checked(actions_BCA, active)

        async def of(part: Part, slots: list[int]) -> list[ChunkResult]:
            inside = [slot - part.first for slot in slots]
            return await part.process.step(inside, actions[slots], deadline_s=self._deadlines.step_s)

        results = await self._everywhere(np.flatnonzero(active).tolist(), of)
        for slot, result in results.items():
            self._running[slot] = not result.ended
            self.steps += result.executed
        return [results.get(slot) for slot in range(self.spec.seats)]

    def _checked(self, actions_BCA: np.ndarray, active_B: np.ndarray) -> np.ndarray:
        """Float32 actions of running environments, or a refusal before anything has moved."""
        actions = np.ascontiguousarray(actions_BCA, np.float32)
        seats, names = self.spec.seats, self.schema.action.names
        if actions.ndim != 3 or actions.shape[::2] != (seats, len(names)) or actions.shape[1] < 1:
            raise WrongAction(
                f"actions have shape {actions.shape}; it must be ({seats}, C >= 1, {len(names)}): {names}"
            )
        if active_B.shape != (seats,) or active_B.dtype != bool:
            raise WrongAction(f"active is {active_B.dtype} {active_B.shape}; it must be bool ({seats},)")
        if not np.isfinite(actions[active_B]).all():
            raise WrongAction("an action of an active environment is not finite")
        idle = [slot for slot in np.flatnonzero(active_B).tolist() if not self._running[slot]]
        if idle:
            raise SessionError(f"slots {idle} have no try in progress; reset them or leave them inactive")
        return actions

    async def _everywhere(
        self, slots: Sequence[int], of: Callable[[Part, list[int]], Coroutine[Any, Any, list[R]]]
    ) -> dict[int, R]:
        """Call every process that holds one of ``slots``, all at once; the session is over if one is lost."""
        async with self._turn:
            self._refuse_if_over()
            shares = [
                (part, mine)
                for part in self._parts
                if (mine := [slot for slot in slots if part.first <= slot < part.first + part.count])
            ]
            try:  # every call ends before this goes on: no process is left in the midst of one
                answers = await asyncio.gather(*(of(*share) for share in shares), return_exceptions=True)
            except asyncio.CancelledError:
                self._lose(EnvironmentLost(LostReason.CANCELLED, "a call was given up"))
                raise
            for error in answers:
                if isinstance(error, BaseException):
                    self._lose(error)
                    raise error
        return {
            slot: answer
            for (_, mine), part_answers in zip(shares, answers, strict=True)
            for slot, answer in zip(mine, cast(list[R], part_answers), strict=True)
        }

    def _refuse_if_over(self) -> None:
        if self._lost is not None:
            raise EnvironmentLost(self._lost.reason, self._lost.detail)
        if self._closed:
            raise SessionError("the session is closed")

    def _lose(self, error: BaseException) -> None:
        """Remember why, and free the seats at once. Any other error is a defect of this program: just as final."""
        self._lost = error if isinstance(error, EnvironmentLost) else EnvironmentLost(LostReason.FAILED, repr(error))
        self._on_end(self)

    @property
    def lost(self) -> EnvironmentLost | None:
        """Why the session ended before it was closed."""
        return self._lost

    async def close(self) -> None:
        """Return the seats, and the processes for reuse; waits for a call in progress. A second time does nothing."""
        async with self._turn:
            if not self._closed:
                self._closed = True
                self._on_end(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
