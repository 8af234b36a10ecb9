"""Waiting for seats: requests of the table become awaitable, and whoever waits hears of every change."""

import asyncio
from collections.abc import Callable, Mapping

from gpu_runtime.environments.seats import SeatRequest, SeatTable, SeatWait, WaitReason

OnWait = Callable[[SeatWait], None]


class SeatDesk:
    """The one place through which a pool takes and returns seats."""

    def __init__(self, table: SeatTable) -> None:
        self._table = table
        self._seated: dict[SeatRequest, asyncio.Event] = {}
        self._on_wait: dict[SeatRequest, OnWait] = {}
        self._told: dict[SeatRequest, SeatWait] = {}

    async def take(self, tenant_id: str, seats: int, on_wait: OnWait | None) -> SeatRequest:
        """Return once seated. Raises SeatsRefused; a cancelled wait leaves the queue."""
        asked = self._table.request(tenant_id, seats)
        seated = self._seated[asked] = asyncio.Event()
        if on_wait is not None:
            self._on_wait[asked] = on_wait
        try:
            self._turn()
            await seated.wait()
        except BaseException:
            self.give_back(asked)
            raise
        return asked

    @property
    def waiting(self) -> int:
        """Requests without seats."""
        return len(self._seated)

    def held(self) -> Mapping[str, int]:
        """Seats by tenant."""
        return self._table.held()

    def is_wanted(self, tenant_id: str) -> bool:
        """Whether somebody waits who might sit down if this tenant gave a seat back."""
        return any(
            wait.reason is WaitReason.ALL_TAKEN
            or (wait.reason is WaitReason.TENANT_QUOTA and asked.tenant_id == tenant_id)
            for asked, wait in self._table.waits().items()
        )

    def dismiss(self) -> None:
        """Wake everyone who waits: there will be no more seats to wait for."""
        for seated in self._seated.values():
            seated.set()

    def give_back(self, asked: SeatRequest) -> None:
        """Free the seats for whoever is next."""
        self._table.release(asked)
        self._forget(asked)
        self._turn()

    def _turn(self) -> None:
        for asked in self._table.admit():
            self._seated[asked].set()
            self._forget(asked)
        for asked, wait in self._table.waits().items():
            if asked in self._on_wait and self._told.get(asked) != wait:
                self._told[asked] = wait
                self._on_wait[asked](wait)

    def _forget(self, asked: SeatRequest) -> None:
        self._seated.pop(asked, None)
        self._on_wait.pop(asked, None)
        self._told.pop(asked, None)
