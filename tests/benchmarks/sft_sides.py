"""Tenants with partitions on disk and the device step that serves them, on the plain path or with the levers."""

from collections.abc import Sequence
from pathlib import Path

from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.step import DeviceStep, Member
from gpu_runtime.training.work import Work, pack_batch
from tests.benchmarks.sft_tenants import Tenant

PARTITION_BYTES = 2 * 2**30


class Side:
    """One way of serving its tenants: ``apart`` or ``together``; ``levers`` False is the plain path."""

    def __init__(self, folder: Path, tenants: Sequence[Tenant], *, device: str, levers: bool) -> None:
        self.tenants = tenants
        self.losses: dict[tuple[int, int], float] = {}  # (tenant, its step) -> loss
        partitions = PartitionStore(folder, PARTITION_BYTES)
        for tenant in tenants:
            partitions.put(_partition(tenant), *pack_batch(tenant.batch))
        self.step = DeviceStep(partitions, DeviceClock(device), head_pool=levers)

    def together(self) -> None:
        """One device step of all."""
        self._run(self.tenants)

    def apart(self) -> None:
        """A device step of each, one after another."""
        for tenant in self.tenants:
            self._run([tenant])

    def _run(self, tenants: Sequence[Tenant]) -> None:
        outcome = self.step.run([_member(tenant) for tenant in tenants])
        for tenant, member in zip(tenants, outcome.members, strict=True):
            if not member.applied:
                raise RuntimeError(f"tenant {tenant.number}: the step was not applied: {member.failure}")
            self.losses[tenant.number, tenant.job.slot.step] = member.metrics["train/loss"]


def loss_difference(one: Side, other: Side) -> float:
    """Largest relative difference of two sides' losses at the same step of the same tenant."""
    both = one.losses.keys() & other.losses.keys()
    return max(abs(one.losses[key] - other.losses[key]) / max(abs(one.losses[key]), 1e-12) for key in both)


def _partition(tenant: Tenant) -> str:
    return f"batch{tenant.number}"


def _member(tenant: Tenant) -> Member:
    work = Work(purpose=Purpose.TRAIN, step=tenant.job.slot.step + 1)
    return Member(partition_id=_partition(tenant), job=tenant.job, work=work)
