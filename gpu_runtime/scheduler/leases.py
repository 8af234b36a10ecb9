"""Leases: every hand-over has an expiry and a fencing epoch."""

import heapq
from dataclasses import dataclass

from gpu_runtime.protocol.ids import PartitionId
from gpu_runtime.scheduler.errors import StaleEpoch, require

_INCARNATION_BITS = 32  # epochs of one run; far more than it can grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Permission to have effects for one partition, until it expires or is taken back."""

    epoch: int  # unique for ever; a holder of any other epoch is too late
    granted_us: int
    expires_us: int


class LeaseBook:
    """At most one live lease per partition. Epochs rise and never repeat, over restarts too.

    A lease past its expiry stays until ``lapsed`` collects it, but can't be renewed any more.
    Each operation is O(log leases).
    """

    def __init__(self, *, ttl_us: int) -> None:
        require(ttl_us > 0, "ttl_us", ttl_us, "above zero")
        self._ttl_us = ttl_us
        self._last_epoch = 0
        self._leases: dict[PartitionId, Lease] = {}
        self._expiries: list[tuple[int, int, PartitionId]] = []  # heap; entries of gone leases are skipped

    @property
    def last_epoch(self) -> int:
        return self._last_epoch

    def __len__(self) -> int:
        return len(self._leases)

    def start_after(self, last_epoch: int) -> None:
        """Begin a new incarnation: above any epoch that the lost end of the previous run can have granted."""
        self._last_epoch = ((last_epoch >> _INCARNATION_BITS) + 1) << _INCARNATION_BITS

    def get(self, partition_id: PartitionId) -> Lease | None:
        return self._leases.get(partition_id)

    def grant(self, partition_id: PartitionId, *, now_us: int) -> Lease:
        assert partition_id not in self._leases, f"{partition_id} is leased already"
        self._last_epoch += 1
        lease = Lease(epoch=self._last_epoch, granted_us=now_us, expires_us=now_us + self._ttl_us)
        return self._put(partition_id, lease)

    def verify(self, partition_id: PartitionId, epoch: int) -> Lease:
        """The live lease of this epoch. Raises StaleEpoch."""
        lease = self._leases.get(partition_id)
        if lease is None or lease.epoch != epoch:
            live = "no live lease" if lease is None else f"live epoch {lease.epoch}"
            raise StaleEpoch(f"partition {partition_id}: epoch {epoch} is over ({live})")
        return lease

    def renew(self, partition_id: PartitionId, epoch: int, *, now_us: int) -> Lease:
        """Extend to now + TTL. Raises StaleEpoch, also when it has expired and was not collected yet."""
        lease = self.verify(partition_id, epoch)
        if now_us >= lease.expires_us:
            raise StaleEpoch(f"partition {partition_id}: epoch {epoch} expired at {lease.expires_us} us")
        renewed_us = now_us + self._ttl_us
        if renewed_us <= lease.expires_us:
            return lease
        return self._put(partition_id, Lease(epoch=epoch, granted_us=lease.granted_us, expires_us=renewed_us))

    def revoke(self, partition_id: PartitionId) -> None:
        self._leases.pop(partition_id, None)

    def lapsed(self, now_us: int) -> list[PartitionId]:
        """Partitions whose lease has expired, longest ago first. The caller revokes."""
        ids = []
        while (expiry_us := self.next_expiry_us()) is not None and expiry_us <= now_us:
            ids.append(heapq.heappop(self._expiries)[2])
        return ids

    def next_expiry_us(self) -> int | None:
        while self._expiries:
            expires_us, epoch, partition_id = self._expiries[0]
            lease = self._leases.get(partition_id)
            if lease is not None and (lease.epoch, lease.expires_us) == (epoch, expires_us):
                return expires_us
            heapq.heappop(self._expiries)
        return None

    def _put(self, partition_id: PartitionId, lease: Lease) -> Lease:
        self._leases[partition_id] = lease
        heapq.heappush(self._expiries, (lease.expires_us, lease.epoch, partition_id))
        return lease
