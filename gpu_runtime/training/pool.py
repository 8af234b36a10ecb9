"""All SFT heads of a device step: those of one architecture in one forward and backward, where that is faster.

A tenant's numbers never depend on who is in the pool; its fault, NaN or stop touches nobody else.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from gpu_runtime.models.heads.base import LossParts
from gpu_runtime.models.slots import Slot
from gpu_runtime.scheduler.accounting import split_exactly
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.faults import Guard, free_memory
from gpu_runtime.training.member import Member
from gpu_runtime.training.pool_buckets import Bucket, Entry, Stacks, buckets_of
from gpu_runtime.training.pool_judge import Judge, Way
from gpu_runtime.training.trainer import Learner

GPU_TOLERANCE = 1e-3  # of a gradient's norm, stacked against alone; on a CPU every bit must agree


class HeadPool:
    """See the module. ``enabled`` False: every tenant's step runs by itself."""

    def __init__(self, clock: DeviceClock, *, enabled: bool = True, judge: Judge | None = None) -> None:
        self._clock, self._enabled = clock, enabled
        self._guard = Guard(clock)
        self._judge = judge or Judge()
        self._stacks = Stacks()

    def train(self, learners: Sequence[Learner]) -> None:
        """One step each. Raises nothing for a member's fault."""
        self._stacks.sweep()
        entries = []
        for learner in learners:
            slot = learner.member.job.slot
            if self._enabled and len(learners) > 1 and isinstance(slot, Slot):
                entries += self._prepare(learner, slot)
            else:
                learner.member.private_ns += self._guard.run(learner.member, partial(_whole_step, learner))
        for bucket in buckets_of(entries):
            self._run(bucket)

    def _prepare(self, learner: Learner, slot: Slot) -> list[Entry]:
        """The learner's prepared step; none when it failed or its job was stopped."""
        found: list[Entry] = []

        def prepare(member: Member) -> None:
            assert member.batch is not None, "opened before"
            prepared = slot.prepare(learner.features, member.batch, member.partition_id)  # type: ignore[arg-type]
            found.append(Entry(learner=learner, slot=slot, prepared=prepared))

        learner.member.private_ns += self._guard.run(learner.member, prepare)
        return found

    def _run(self, bucket: Bucket) -> None:
        way = self._judge.way(bucket.signature) if bucket.stackable else Way.LOOP
        if way is Way.BOTH:
            self._both(bucket)
        elif way is Way.LOOP or not self._together(bucket):
            for entry in bucket.entries:
                self._finish(entry, self._apart(entry)[0])

    def _both(self, bucket: Bucket) -> None:
        """One by one, which is what counts and is billed; stacked as well, which is compared and then forgotten."""
        apart = [self._apart(entry) for entry in bucket.entries]
        losses = [loss for loss, _ in apart if loss is not None]
        if len(losses) == len(apart) and all(bool(torch.isfinite(loss.total)) for loss in losses):
            gradients = [_take_gradients(entry) for entry in bucket.entries]
            # what is not finite equals nothing; it is its owner's fault and says nothing about the two ways
            stacked, stacked_ns = self._stacked(bucket) if _all_finite(gradients) else (None, 0)
            if stacked is not None:
                again = [_take_gradients(entry) for entry in bucket.entries]
                equal = all(map(_same, [loss.total for loss in losses], [loss.total for loss in stacked]))
                equal = equal and all(map(_all_same, gradients, again))
                loop_ns = sum(busy_ns for _, busy_ns in apart)
                self._judge.compared(bucket.signature, equal=equal, loop_ns=loop_ns, stacked_ns=stacked_ns)
            for entry, own in zip(bucket.entries, gradients, strict=True):
                for group, gradient in zip(entry.slot.weights.groups, own, strict=True):
                    group.whole.grad = gradient
        for entry, (loss, _) in zip(bucket.entries, apart, strict=True):
            self._finish(entry, loss)

    def _apart(self, entry: Entry) -> tuple[LossParts | None, int]:
        """Loss and gradients of one tenant, and the nanoseconds of work; None when it failed or was stopped."""
        losses: list[LossParts] = []

        def run(_: Member) -> None:
            loss = entry.slot.loss(entry.prepared)
            loss.total.backward()  # type: ignore[no-untyped-call]
            losses.append(loss)

        begin_ns = self._clock.worked_ns()
        entry.learner.member.private_ns += self._guard.run(entry.learner.member, run)
        return (losses[0] if losses else None), self._clock.worked_ns() - begin_ns

    def _finish(self, entry: Entry, loss: LossParts | None) -> None:
        """Apply the step, unless its loss failed or its job was stopped meanwhile: then it never was."""
        member = entry.learner.member
        if loss is not None:
            member.private_ns += self._guard.run(
                member, lambda _: entry.learner.report(entry.slot.finish(entry.prepared, loss))
            )
        if not member.applied:
            entry.slot.abandon(entry.prepared)

    def _together(self, bucket: Bucket) -> bool:
        """Everybody's step in one go, its time split by samples; False when it did not work and nothing was done."""
        begin_ns = self._clock.now_ns()
        losses, _ = self._stacked(bucket)
        if losses is None:
            return False
        members = [entry.learner.member for entry in bucket.entries]
        shares = split_exactly(self._clock.now_ns() - begin_ns, {m.partition_id: m.samples for m in members})
        for entry, loss, member in zip(bucket.entries, losses, members, strict=True):
            member.private_ns += shares[member.partition_id]
            self._finish(entry, loss)
        return True

    def _stacked(self, bucket: Bucket) -> tuple[list[LossParts] | None, int]:
        """Losses with gradients of all, and the nanoseconds of work."""
        try:
            stack = self._stacks.of(bucket)
            begin_ns = self._clock.worked_ns()
            losses = stack.losses([entry.prepared.inputs for entry in bucket.entries])
            stack.backward(losses)
            return losses, self._clock.worked_ns() - begin_ns
        except Exception:  # whoever is to blame fails alone; the others go on in the loop
            self._judge.refuse(bucket.signature)
            self._stacks.drop(bucket)
            for entry in bucket.entries:
                entry.slot.weights.clear()
            free_memory()
            return None, 0


def _whole_step(learner: Learner, member: Member) -> None:
    learner.report(member.job.slot.train_step(learner.features, member.batch, member.partition_id))  # type: ignore[union-attr,arg-type]


def _take_gradients(entry: Entry) -> list[Tensor | None]:
    weights = entry.slot.weights
    weights.gather()
    gradients = [group.whole.grad for group in weights.groups]
    weights.clear()
    return gradients


def _all_finite(gradients: Sequence[Sequence[Tensor | None]]) -> bool:
    return all(bool(torch.isfinite(own).all()) for entry in gradients for own in entry if own is not None)


def _all_same(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> bool:
    return all(map(_same, a, b))


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.is_cuda:
        return bool((a - b).norm() <= GPU_TOLERANCE * a.norm())
    return torch.equal(a, b)
