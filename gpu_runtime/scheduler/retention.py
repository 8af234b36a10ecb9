"""Bytes of retained partitions: what is on disk, and what room is promised."""

from collections import defaultdict

from gpu_runtime.protocol.ids import TenantId
from gpu_runtime.scheduler.errors import QueueFull
from gpu_runtime.scheduler.training_job import QueueLimits, TrainingJob


def held_bytes(job: TrainingJob) -> int:
    """Room a training job takes: at least what was promised while it is in production, then what it has."""
    in_production = job.ready_seq is None and not job.ended
    return max(job.bytes, job.bytes_expected) if in_production else job.bytes


class Retention:
    """Counters over all retained partitions, kept equal to the sum over the jobs by ``replace``."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._held: defaultdict[TenantId, int] = defaultdict(int)
        self._held_total = 0
        self._live = 0

    @property
    def live_bytes(self) -> int:
        """Bytes on disk."""
        return self._live

    def held_by(self, tenant_id: TenantId) -> int:
        return self._held.get(tenant_id, 0)

    def check(self, old: TrainingJob | None, new: TrainingJob) -> None:
        """Raise QueueFull if the change needs more room than there is."""
        more = held_bytes(new) - (held_bytes(old) if old else 0)
        tenant_bytes, total_bytes = self.held_by(new.tenant_id) + more, self._held_total + more
        if more > 0 and tenant_bytes > self._limits.bytes_per_tenant:
            raise QueueFull(
                f"tenant {new.tenant_id} would hold {tenant_bytes} bytes; allowed: {self._limits.bytes_per_tenant}",
                reason="tenant_bytes",
            )
        if more > 0 and total_bytes > self._limits.bytes_total:
            raise QueueFull(
                f"the queue would hold {total_bytes} bytes; allowed: {self._limits.bytes_total}", reason="total_bytes"
            )

    def check_open(self, tenant_id: TenantId) -> None:
        """Raise QueueFull if nothing more may be started, whatever its size."""
        if self.held_by(tenant_id) >= self._limits.bytes_per_tenant:
            raise QueueFull(f"tenant {tenant_id} holds {self.held_by(tenant_id)} bytes already", reason="tenant_bytes")
        if self._held_total >= self._limits.bytes_total:
            raise QueueFull(f"the queue holds {self._held_total} bytes already", reason="total_bytes")

    def replace(self, old: TrainingJob | None, new: TrainingJob) -> None:
        more = held_bytes(new) - (held_bytes(old) if old else 0)
        self._held[new.tenant_id] += more
        self._held_total += more
        self._live += new.bytes - (old.bytes if old else 0)
        if not self._held[new.tenant_id]:
            del self._held[new.tenant_id]
