"""Tenants with partitions on disk and the device step that serves them, on the plain path or with the levers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from gpu_runtime.features.store import FeatureStore
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.step import DeviceStep, Member
from gpu_runtime.training.work import Work, pack_batch
from tests.benchmarks.sft_store import connect, frames_of, open_store, without_images
from tests.benchmarks.sft_tenants import Tenant

PARTITION_BYTES = 2 * 2**30


class Plain:
    """Every tenant alone: a forward of its own, a step of its own, nothing kept."""

    def __init__(self, folder: Path, tenants: Sequence[Tenant], *, device: str) -> None:
        self.tenants = tenants
        self.losses: dict[tuple[int, int], float] = {}  # (tenant, its step) -> loss
        self.partitions = PartitionStore(folder / "partitions", PARTITION_BYTES)
        self.step = DeviceStep(self.partitions, DeviceClock(device), head_pool=False)
        self.pack()

    def pack(self) -> None:
        """Write every tenant's partition anew, as before each step of a job."""
        for tenant in self.tenants:
            self._write(tenant, *pack_batch(tenant.batch))

    def run(self) -> None:
        """A device step of each, one after another."""
        for tenant in self.tenants:
            self._step([tenant])

    def _write(self, tenant: Tenant, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
        self.partitions.clear(_partition(tenant))
        self.partitions.put(_partition(tenant), arrays, metadata)

    def _step(self, tenants: Sequence[Tenant]) -> None:
        outcome = self.step.run([_member(tenant) for tenant in tenants])
        for tenant, member in zip(tenants, outcome.members, strict=True):
            if not member.applied:
                raise RuntimeError(f"tenant {tenant.number}: the step was not applied: {member.failure}")
            self.losses[tenant.number, tenant.job.slot.step] = member.metrics["train/loss"]


class Levers(Plain):
    """All tenants in one device step: one packed forward, the head pool, the store of features."""

    def __init__(self, folder: Path, tenants: Sequence[Tenant], *, device: str) -> None:
        super().__init__(folder, tenants, device=device)
        self._folder, self._device = folder, device
        self.step = DeviceStep(self.partitions, DeviceClock(device), head_pool=True)
        self._store: FeatureStore | None = None

    def forget(self) -> None:
        """The store is a new and empty one: the next step is a first epoch's."""
        self.close()
        self._store = open_store(Path(mkdtemp(dir=self._folder)), self._device)
        connect(self.tenants, self._store)
        self._pack(pictured=True)

    def remember(self) -> None:
        """All frames were seen, so that partitions come without images from here on."""
        self.forget()
        self.run()
        self._pack(pictured=False)

    def run(self) -> None:
        """Take what is stored, as the producers do ahead, then one device step of all."""
        for tenant in self.tenants:
            frames = tenant.job.frames
            assert frames is not None, "connected before"
            frames.stage(_partition(tenant), frames.keys(frames_of(tenant.batch, pictured=False).refs))
        self._step(self.tenants)
        for tenant in self.tenants:
            tenant.job.frames.drop(_partition(tenant))  # type: ignore[union-attr]

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _pack(self, *, pictured: bool) -> None:
        for tenant in self.tenants:
            batch = tenant.batch if pictured else without_images(tenant.batch)
            self._write(tenant, *pack_batch(batch, frames_of(tenant.batch, pictured=pictured)))


def loss_difference(one: Plain, other: Plain) -> float:
    """Largest relative difference of two sides' losses at the same step of the same tenant."""
    both = one.losses.keys() & other.losses.keys()
    return max(abs(one.losses[key] - other.losses[key]) / max(abs(one.losses[key]), 1e-12) for key in both)


def _partition(tenant: Tenant) -> str:
    return f"batch{tenant.number}"


def _member(tenant: Tenant) -> Member:
    work = Work(purpose=Purpose.TRAIN, step=tenant.job.slot.step + 1)
    return Member(partition_id=_partition(tenant), job=tenant.job, work=work)
