"""Tenants that train an adapter of the base: one grouped forward with gradients and one backward for all of them.

A tenant's gradients come from its own rows only, so that its numbers don't depend on who is in the group; its fault,
NaN or stop touches nobody else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.heads.base import LossParts
from gpu_runtime.models.slots import Prepared, Slot
from gpu_runtime.scheduler.accounting import split_exactly
from gpu_runtime.scheduler.training_queue import Purpose
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.faults import OUT_OF_MEMORY, Guard, explain, free_memory
from gpu_runtime.training.member import Features, Member
from gpu_runtime.training.trainer import Learner

Encode = Callable[[Sequence[Member]], dict[str, Features]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """A tenant's prepared step and its loss."""

    learner: Learner
    slot: Slot
    prepared: Prepared
    loss: LossParts


def trains_adapter(member: Member) -> bool:
    """Does its step send gradients through the base?"""
    slot = member.job.slot
    return isinstance(slot, Slot) and slot.lora is not None and member.work.purpose is Purpose.TRAIN


class AdaptedTrainer:
    """Encodes and trains; ``encode`` makes differentiable features of several members in one forward."""

    def __init__(self, clock: DeviceClock, encode: Encode) -> None:
        self._clock, self._encode = clock, encode
        self._guard = Guard(clock)

    def train(self, members: Sequence[Member]) -> None:
        """One step each, together where their base groups adapters. Raises nothing for a member's fault.

        When the joint pass fails nobody has stepped: each member then runs alone, and who fails alone is the culprit.
        """
        grouped = len(members) > 1 and members[0].job.backbone.savings.group_lora
        if grouped and self._together(members):
            return
        for member in members:
            if member.job.stopped:
                member.skipped = True
            else:
                self._together([member])

    def _together(self, members: Sequence[Member]) -> bool:
        """Forward, losses, one backward, updates; False when the pass failed and is to be tried one by one.

        The failed try is overhead: it leaves nobody time or a fault.
        """
        begin_ns, before_ns = self._clock.now_ns(), {member.partition_id: member.private_ns for member in members}
        steps: list[_Step] = []
        failed: Exception | None = None
        try:
            features = self._encode(members)
            for member in members:
                self._prepare(Learner(member=member, features=features.pop(member.partition_id)), steps)
                if len(members) > 1 and member.failure is not None and member.failure.reason == OUT_OF_MEMORY:
                    raise torch.OutOfMemoryError  # everybody's graphs lie in memory: alone it may fit
            _backward(steps)
        except Exception as error:
            failed = error
            for step in steps:
                step.slot.abandon(step.prepared)
            steps.clear()
            free_memory()
        busy_ns = self._clock.now_ns() - begin_ns
        if failed is not None and len(members) > 1:
            for member in members:
                member.failure, member.private_ns = None, before_ns[member.partition_id]
            return False
        own_ns = sum(member.private_ns - before_ns[member.partition_id] for member in members)
        shares = split_exactly(busy_ns - own_ns, {member.partition_id: max(1, member.tokens) for member in members})
        for member in members:
            member.private_ns += shares[member.partition_id]
        if failed is not None:
            members[0].failure = explain(failed)
        for step in steps:
            self._finish(step)
        return True

    def _prepare(self, learner: Learner, steps: list[_Step]) -> None:
        """Add the member's loss, unless it has a fault of its own or was stopped."""

        def run(member: Member) -> None:
            slot, batch = member.job.slot, member.batch
            assert isinstance(slot, Slot), "chosen by trains_adapter"
            assert isinstance(batch, SampleBatch), "opened before"
            prepared = slot.prepare(learner.features, batch, member.partition_id)
            with slot.undone_on_error(prepared):
                loss = slot.loss(prepared)
            steps.append(_Step(learner=learner, slot=slot, prepared=prepared, loss=loss))

        learner.member.private_ns += self._guard.run(learner.member, run)

    def _finish(self, step: _Step) -> None:
        """Apply it, unless the job was stopped meanwhile: then it never was."""
        member = step.learner.member
        finish = lambda _: step.learner.report(step.slot.finish(step.prepared, step.loss))  # noqa: E731
        member.private_ns += self._guard.run(member, finish)
        if not member.applied:
            step.slot.abandon(step.prepared)


def _backward(steps: Sequence[_Step]) -> None:
    """Gradients of every finite loss; one that is not is refused by its own ``finish`` and reaches nobody's."""
    losses: list[Tensor] = [step.loss.total for step in steps]
    if finite := [loss for loss in losses if bool(torch.isfinite(loss))]:
        torch.autograd.backward(finite)
