"""The environment service: sessions for tenants, on processes that are reused while they are well."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from gpu_runtime.environments.base import EnvironmentKind
from gpu_runtime.environments.busy import BusyMeter
from gpu_runtime.environments.errors import EnvironmentLost, LostReason, SessionError
from gpu_runtime.environments.process import EnvironmentProcess, Opened
from gpu_runtime.environments.registry import FAMILIES, vectorises
from gpu_runtime.environments.seat_desk import OnWait, SeatDesk
from gpu_runtime.environments.seats import SeatRequest, SeatTable
from gpu_runtime.environments.session import Deadlines, EnvironmentSession, Part, SessionSpec
from gpu_runtime.environments.slot import TryRules


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """What the service may use. A seat is one environment; ``processes_warm`` wait unused for the next session."""

    seats_total: int = 32
    seats_per_tenant: int = 16
    seats_per_process: int = 4
    processes_warm: int = 4
    resident_bytes_max: int = 6 * 2**30
    deadlines: Deadlines = field(default_factory=Deadlines)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """Seats in use by tenant, requests that wait, processes, sessions lost so far by reason."""

    seats: Mapping[str, int]
    waiting: int
    processes_used: int
    processes_warm: int
    lost: Mapping[LostReason, int]


class EnvironmentPool:
    """Create it on the event loop that will run it, in a thread that lives as long as it; end with ``close``.

    ``families`` extends the registry (see ``registry.FAMILIES``). On ``device`` "cuda" the seats of a session are the
    worlds of one environment where its family can do so (``registry.vectorises``).
    """

    def __init__(self, limits: PoolLimits, *, families: Mapping[str, str] = FAMILIES, device: str = "cpu") -> None:
        self.limits, self.device, self.busy = limits, device, BusyMeter()
        self._families = families
        self._desk = SeatDesk(SeatTable(total=limits.seats_total, per_tenant=limits.seats_per_tenant))
        self._used: set[EnvironmentProcess] = set()
        self._warm: list[EnvironmentProcess] = []  # the longest unused first
        self._sessions: dict[EnvironmentSession, SeatRequest] = {}
        self._reaping: set[asyncio.Task[None]] = set()
        self._lost: Counter[LostReason] = Counter()
        self._closed = False

    def status(self) -> PoolStatus:
        """What is in use now."""
        return PoolStatus(
            seats=self._desk.held(),
            waiting=self._desk.waiting,
            processes_used=len(self._used),
            processes_warm=len(self._warm),
            lost=dict(self._lost),
        )

    async def open(
        self, spec: SessionSpec, *, on_wait: OnWait | None = None, busy: BusyMeter | None = None
    ) -> EnvironmentSession:
        """Wait for seats, telling ``on_wait`` reason and position at every change; then start or reuse processes.

        ``busy``, made by ``make_meter``, measures the session's calls; it also knows those of one that did not open.
        Raises SeatsRefused, SessionError, UnknownEnvironment, UnknownCamera, SimulatorMissing, EnvironmentLost.
        """
        if spec.processes is not None and not 1 <= spec.processes <= spec.seats:
            raise SessionError(f"processes: {spec.processes} for {spec.seats} seats; allowed: 1 to {spec.seats}")
        if spec.rules.steps_max is not None and spec.rules.steps_max < 1:
            raise SessionError(f"rules.steps_max: {spec.rules.steps_max}; allowed: 1 or more, or none")
        self._refuse_if_closed()
        seats = await self._desk.take(spec.tenant_id, spec.seats, on_wait)
        try:
            self._refuse_if_closed()
            session = await self._start(spec, busy or self.make_meter())
        except BaseException:
            self._desk.give_back(seats)
            raise
        self._sessions[session] = seats
        return session

    def seats_are_wanted(self, tenant_id: str) -> bool:
        """Whether somebody waits who might have what this tenant gives back."""
        return self._desk.is_wanted(tenant_id)

    def make_meter(self) -> BusyMeter:
        """For one session: what it measures counts as the service's time too."""
        return BusyMeter(self.busy)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SessionError("the environment service is closed")

    async def _start(self, spec: SessionSpec, busy: BusyMeter) -> EnvironmentSession:
        together = vectorises(spec.kind, self.device)
        usual = 1 if together else -(-spec.seats // self.limits.seats_per_process)
        counts = _shares(spec.seats, spec.processes or usual)
        processes = [self._take(spec.kind, self.device if together and count > 1 else None, busy) for count in counts]
        try:
            opened = await self._open_all(processes, counts, spec.rules)
        except BaseException as error:
            self._count(error)
            for process in processes:
                self._put_back(process)
            raise
        firsts = [sum(counts[:index]) for index in range(len(counts))]
        parts = [Part(*fields) for fields in zip(processes, firsts, counts, strict=True)]
        return EnvironmentSession(spec, opened, parts, deadlines=self.limits.deadlines, busy=busy, on_end=self._ended)

    async def _open_all(
        self, processes: Sequence[EnvironmentProcess], counts: Sequence[int], rules: TryRules
    ) -> Opened:
        """Wait for every process, so that none is left in the midst of a call; raise the first error."""
        calls = (
            process.open(count, rules, deadline_s=self.limits.deadlines.open_s)
            for process, count in zip(processes, counts, strict=True)
        )
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return cast(Opened, answers[0])

    def _take(self, kind: EnvironmentKind, vector_device: str | None, busy: BusyMeter) -> EnvironmentProcess:
        """A warm process of this kind, the latest used first; else a new one."""
        for process in reversed(self._warm):
            if (process.kind, process.vector_device) != (kind, vector_device):
                continue
            self._warm.remove(process)
            if process.alive:
                process.meter = busy
                self._used.add(process)
                return process
            self._discard(process)
        process = EnvironmentProcess(
            kind,
            families=self._families,
            vector_device=vector_device,
            resident_bytes_max=self.limits.resident_bytes_max,
            meter=busy,
        )
        self._used.add(process)
        return process

    def _put_back(self, process: EnvironmentProcess) -> None:
        """Keep it warm if it is well and has not grown to half its bound; make room by the longest unused."""
        self._used.discard(process)
        if self._closed or not process.usable or process.resident_bytes > self.limits.resident_bytes_max // 2:
            self._discard(process)
            return
        self._warm.append(process)
        while len(self._warm) > self.limits.processes_warm:
            self._discard(self._warm.pop(0))

    def _discard(self, process: EnvironmentProcess) -> None:
        process.kill()
        reaping = asyncio.create_task(process.reap())
        self._reaping.add(reaping)
        reaping.add_done_callback(self._reaping.discard)

    def _ended(self, session: EnvironmentSession) -> None:
        """A session was lost or closed: take back what it had, once."""
        seats = self._sessions.pop(session, None)
        if seats is None:
            return
        self._count(session.lost)
        for process in session.processes:
            self._put_back(process)
        self._desk.give_back(seats)

    def _count(self, error: BaseException | None) -> None:
        if isinstance(error, EnvironmentLost):
            self._lost[error.reason] += 1

    async def close(self) -> None:
        """Kill every process; calls in progress raise EnvironmentLost, and whoever waits for seats SessionError."""
        self._closed = True
        self._desk.dismiss()
        for process in [*self._used, *self._warm]:
            self._discard(process)
        self._used.clear()
        self._warm.clear()
        while self._reaping:
            await asyncio.gather(*self._reaping)


def _shares(seats: int, processes: int) -> list[int]:
    """Seats of each process, as even as can be."""
    return [seats // processes + (index < seats % processes) for index in range(processes)]
