"""Seats: one per environment in use, bounded for each tenant and in all. Pure; who waits is told why and where.

First come, first served among those whose own tenant has room. Whoever waits for its own tenant's seats holds up that
tenant's later requests only; whoever waits for the service's seats is not overtaken. So a large request is not starved
by small ones, neither other tenants' nor its own tenant's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpu_runtime.environments.errors import SeatsRefused


class WaitReason(StrEnum):
    """Why a request for seats waits."""

    TENANT_QUOTA = "tenant_quota"  # its own tenant's sessions hold them
    ALL_TAKEN = "all_taken"  # the whole service has too few left
    BEHIND_OTHERS = "behind_others"  # there is room, but an earlier request is waiting for it


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatWait:
    """``position`` counts from 1 among all that wait."""

    reason: WaitReason
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """``seats`` seats for one session of ``tenant_id``, all or none; ``number`` tells two requests apart."""

    tenant_id: str
    seats: int
    number: int


class SeatTable:
    """Who sits and who waits. Ask with ``request``; then ``admit`` says who may sit down now."""

    def __init__(self, *, total: int, per_tenant: int) -> None:
        self.total, self.per_tenant = total, per_tenant
        self._seated: dict[int, SeatRequest] = {}
        self._waiting: dict[int, SeatRequest] = {}
        self._numbers = 0

    def request(self, tenant_id: str, seats: int) -> SeatRequest:
        """Queue up. Raises SeatsRefused for what can never be granted."""
        allowed = min(self.total, self.per_tenant)
        if not 1 <= seats <= allowed:
            raise SeatsRefused(f"seats: {seats} for tenant {tenant_id}; allowed: 1 to {allowed}")
        self._numbers += 1
        asked = SeatRequest(tenant_id=tenant_id, seats=seats, number=self._numbers)
        self._waiting[asked.number] = asked
        return asked

    def admit(self) -> list[SeatRequest]:
        """Seat everyone whose turn it is."""
        admitted = []
        for asked, reason in self._reasons():
            if reason is None:
                self._seated[asked.number] = self._waiting.pop(asked.number)
                admitted.append(asked)
        return admitted

    def release(self, asked: SeatRequest) -> None:
        """Give the seats back, or stop waiting for them; a second time changes nothing."""
        self._seated.pop(asked.number, None)
        self._waiting.pop(asked.number, None)

    def waits(self) -> dict[SeatRequest, SeatWait]:
        """Everyone who waits after ``admit``, in the order of their turn."""
        return {
            asked: SeatWait(reason=reason or WaitReason.BEHIND_OTHERS, position=position)
            for position, (asked, reason) in enumerate(self._reasons(), start=1)
        }

    def held(self) -> Mapping[str, int]:
        """Seats by tenant; nobody who holds none."""
        seats: dict[str, int] = {}
        for asked in self._seated.values():
            seats[asked.tenant_id] = seats.get(asked.tenant_id, 0) + asked.seats
        return seats

    def _reasons(self) -> Iterator[tuple[SeatRequest, WaitReason | None]]:
        """Everyone who waits and why, None: it may sit down, before the next is asked for."""
        held_up: set[str] = set()  # tenants
        queue_stands = False
        for asked in list(self._waiting.values()):
            reason = self._obstacle(asked)
            if reason is WaitReason.TENANT_QUOTA:
                held_up.add(asked.tenant_id)
            elif queue_stands or asked.tenant_id in held_up:
                reason = WaitReason.BEHIND_OTHERS
            queue_stands |= reason is WaitReason.ALL_TAKEN
            yield asked, reason

    def _obstacle(self, asked: SeatRequest) -> WaitReason | None:
        held = self.held()
        if held.get(asked.tenant_id, 0) + asked.seats > self.per_tenant:
            return WaitReason.TENANT_QUOTA
        if sum(held.values()) + asked.seats > self.total:
            return WaitReason.ALL_TAKEN
        return None
