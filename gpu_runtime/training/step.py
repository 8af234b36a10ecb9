"""One device step: ONE packed frozen forward for the whole group, then each tenant's own slice, all of it measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gpu_runtime.models.lora.encode import encode_with
from gpu_runtime.scheduler.accounting import MeasuredStep
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.training.adapted import AdaptedTrainer, trains_adapter
from gpu_runtime.training.ahead import found
from gpu_runtime.training.clock import DeviceClock, unix_us
from gpu_runtime.training.faults import Guard, explain, free_memory
from gpu_runtime.training.member import Features, Member
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.pool import HeadPool
from gpu_runtime.training.slices import FeatureStore, NothingKept, RlSlice, SftSlice, Slice
from gpu_runtime.training.trainer import Learner, Trainer

__all__ = ["DeviceStep", "Member", "StepOutcome", "explain"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """``measured`` in microseconds: everything the compute thread did, the shared forward, each private slice."""

    started_at_us: int
    measured: MeasuredStep
    members: tuple[Member, ...]


class DeviceStep:
    """Runs groups, one at a time, in the compute thread. An error in one tenant's slice stays in that slice."""

    def __init__(
        self,
        partitions: PartitionStore,
        clock: DeviceClock,
        kept: FeatureStore | None = None,
        *,
        head_pool: bool = True,
    ) -> None:
        """``kept``: prefix features that the inference service put aside for a trainer.

        ``head_pool``: tenants' heads of one architecture may train in one call.
        """
        self._partitions = partitions
        self._clock = clock
        self._guard = Guard(clock)
        self._pool: Trainer = HeadPool(clock, enabled=head_pool)
        self._adapted = AdaptedTrainer(clock, partial(_forward, grad=True))
        self._slices: dict[str, Slice] = {"sft": SftSlice(), "rl": RlSlice(kept or NothingKept())}

    def run(self, members: Sequence[Member]) -> StepOutcome:
        """Open payloads, encode together, train, fit or evaluate apart. Raises nothing for a member's fault."""
        started_at_us, begin_ns = unix_us(), self._clock.now_ns()
        for member in members:
            self._guard.run(member, self._open)
        adapted = [member for member in members if member.applied and trains_adapter(member)]
        frozen = [member for member in members if member.applied and not trains_adapter(member)]
        features, shared_ns = self._encode(frozen)
        learners = []
        for member in frozen:
            if not member.applied:
                continue
            own = self._gathered(member, features.pop(member.partition_id))
            if not member.applied:
                continue
            if self._trains_together(member):
                learners.append(Learner(member=member, features=own))
            else:
                member.private_ns += self._guard.run(member, partial(self._slice, own))
        self._pool.train(learners)
        self._adapted.train(adapted)
        busy_ns = self._clock.now_ns() - begin_ns
        private_us = {member.partition_id: member.private_ns // 1000 for member in members}
        measured = MeasuredStep(busy_us=busy_ns // 1000, shared_us=shared_ns // 1000, private_us=private_us)
        return StepOutcome(started_at_us=started_at_us, measured=measured, members=tuple(members))

    def measure(self, action: Callable[[], T]) -> tuple[int, T, int]:
        """(Unix start in microseconds, result, busy microseconds) of platform work on the device."""
        started_at_us, begin_ns = unix_us(), self._clock.now_ns()
        result = action()
        return started_at_us, result, (self._clock.now_ns() - begin_ns) // 1000

    def read(self, job: MountedJob, partition_id: str) -> Any:
        """A payload, unpacked, for a step to come. In any thread."""
        arrays, metadata = self._partitions.open(partition_id)
        return self._slices[job.slot.kind].read(job, arrays, metadata)

    def _open(self, member: Member) -> None:
        payload = found(member.ahead)
        if payload is None:
            payload = self.read(member.job, member.partition_id)
        self._slices[member.job.slot.kind].open(member, payload)

    def _encode(self, members: Sequence[Member]) -> tuple[dict[str, Features], int]:
        """Features by partition and the nanoseconds of the shared forward.

        When the forward of the group fails, each member is encoded alone: who fails alone is the culprit, and the
        others go on with what they would have had without it. That time is their own; the failed try is overhead.
        """
        if not any(member.inputs for member in members):
            return {member.partition_id: [] for member in members}, 0
        begin_ns = self._clock.now_ns()
        try:
            features = _forward(members)
            shared_ns = self._clock.now_ns() - begin_ns
            for member in members:
                member.shared_tokens = member.tokens
            return features, shared_ns
        except Exception as error:
            free_memory()
            if len(members) == 1:
                members[0].failure = explain(error)
                return {}, 0
        features = {}
        for member in members:
            member.private_ns += self._guard.run(member, lambda member: features.update(_forward([member])))
        return features, 0

    def _gathered(self, member: Member, computed: Features) -> Features:
        """Features of all samples of a member: those of the forward, and those it needed none for."""
        gathered: list[Features] = []
        part = self._slices[member.job.slot.kind]
        member.private_ns += self._guard.run(member, lambda member: gathered.append(part.gather(member, computed)))
        return gathered[0] if gathered else []

    def _trains_together(self, member: Member) -> bool:
        """A step of imitation is made by a trainer; everything else by the member's own slice."""
        return member.job.slot.kind == "sft" and member.work.purpose is Purpose.TRAIN

    def _slice(self, features: Features, member: Member) -> None:
        self._slices[member.job.slot.kind].run(member, features)


def _forward(members: Sequence[Member], *, grad: bool = False) -> dict[str, Features]:
    """Features by partition, each made with its tenant's own adapter where there is one."""
    inputs = [feature for member in members for feature in member.inputs]
    taps = [member.job.slot.taps for member in members for _ in member.inputs]
    adapters = [member.job.slot.lora for member in members for _ in member.inputs]
    encoded = iter(encode_with(members[0].job.backbone, inputs, taps, adapters, grad=grad) if inputs else ())
    return {member.partition_id: [next(encoded) for _ in member.inputs] for member in members}
