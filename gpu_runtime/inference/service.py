"""The inference service: admits predict requests, runs fair group batches one at a time, answers.

Decisions are the queue's, the arithmetic is the step's; this carries both out: the event loop and one compute thread.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch

from gpu_runtime.inference.errors import DeadlineMissed, InferenceError, ServiceStopped
from gpu_runtime.inference.messages import PredictReply, PredictRequest
from gpu_runtime.inference.policy_store import Pin, PolicyStore
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.settings import InferenceSettings, MeasuredLimits
from gpu_runtime.inference.step import PredictMember, PredictOutcome, PredictStep
from gpu_runtime.inference.usage import PredictRecord
from gpu_runtime.inference.usage_writer import UsageWriter
from gpu_runtime.protocol.ids import RequestId, TenantId
from gpu_runtime.scheduler.inference_queue import InferenceBatch, InferenceRequest
from gpu_runtime.store.signal import Signal

_RECHECK_S = 0.05  # while the journal is behind


class Watch(Protocol):
    """Hears when the device is busy, and how long whoever got an answer had waited for it."""

    def begin(self, now_us: int) -> None: ...

    def end(self, now_us: int, group_size: int) -> None: ...

    def answered(self, now_us: int, taken_us: int) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Ticket:
    """One admitted request: what is held for it until it is answered."""

    request: PredictRequest
    queued: InferenceRequest
    pin: Pin[ServedPolicy]
    reply: asyncio.Future[PredictReply]


class InferenceService:
    """One device. ``predict`` from any task of the event loop; ``run`` in one of its own.

    ``write`` makes a usage record durable and returns when it is; it tries again by itself.
    """

    def __init__(
        self,
        *,
        policies: PolicyStore[ServedPolicy],
        step: PredictStep,
        write: Callable[[PredictRecord], Awaitable[object]],
        settings: InferenceSettings | None = None,
        watch: Watch | None = None,
        compute: Executor | None = None,
        threads: int = 1,
    ) -> None:
        self.policies = policies
        self.settings = settings or InferenceSettings()
        self.measured = MeasuredLimits(self.settings)
        self.queue = self.measured.make_queue()
        self._usage = UsageWriter(
            write,
            every_us=self.settings.write_every_us,
            unwritten_steps_max=self.settings.unwritten_steps_max,
        )
        self._step, self._watch = step, watch
        # torch keeps its thread count per thread on some builds: set it where the work is done
        set_threads = functools.partial(torch.set_num_threads, threads)
        self._own_compute = None if compute is not None else ThreadPoolExecutor(1, "inference", set_threads)
        self._compute = compute or self._own_compute
        self._tickets: dict[RequestId, _Ticket] = {}
        self._admitted = 0
        self._changed = Signal()
        self._stopping = False

    def set_weight(self, tenant_id: str, weight: int) -> None:
        """The tenant's share of the device when several want it."""
        self.queue.set_weight(TenantId(tenant_id), weight)

    async def predict(self, request: PredictRequest) -> PredictReply:
        """Actions of the pinned policy version. Raises a subclass of InferenceError or SchedulerError.

        Whoever stops waiting (cancels) leaves the queue; a request on the device finishes for nobody, and is billed.
        """
        ticket = self._admit(request)
        try:
            return await ticket.reply
        except asyncio.CancelledError:
            if self.queue.withdraw(ticket.queued.request_id):
                self._close(ticket)
            raise

    async def run(self) -> None:
        """Until ``stop``: expire, batch, run, answer. Whatever waits at the end is refused; usage is on disk then."""
        try:
            while not self._stopping:
                self._expire()
                batch = None if self._usage.behind else self.queue.next_batch(_now_us())
                if batch is not None:
                    await self._run_batch(batch)
                else:
                    await self._idle()
                self._usage.write_if_due(_now_us(), self._changed.notify)
        finally:
            self._close_all()
            await self._usage.close()

    def stop(self) -> None:
        """Take no more requests; ``run`` returns after the step in progress."""
        self._stopping = True
        self._changed.notify()

    def _admit(self, request: PredictRequest) -> _Ticket:
        """Pin and queue, or refuse and hold nothing."""
        if self._stopping:
            raise ServiceStopped()
        pin = self.policies.pin(request.tenant_id, request.slot_id, request.policy_version)
        now_us = _now_us()
        try:
            self._admitted += 1
            queued = self.queue.arrive(
                now_us=now_us,
                request_id=RequestId(str(self._admitted)),
                tenant_id=TenantId(request.tenant_id),
                session_id=request.session_id,
                group_key=pin.policy.group_key,
                tokens=pin.policy.tokens(request),
                deadline_us=None if request.timeout_us is None else now_us + request.timeout_us,
            )
        except Exception:
            self.policies.unpin(pin)
            raise
        reply = asyncio.get_running_loop().create_future()
        ticket = _Ticket(request=request, queued=queued, pin=pin, reply=reply)
        self._tickets[queued.request_id] = ticket
        self._changed.notify()
        return ticket

    async def _run_batch(self, batch: InferenceBatch) -> None:
        tickets = [self._tickets[queued.request_id] for queued in batch.requests]
        members = [
            PredictMember(
                request_id=ticket.queued.request_id,
                request=ticket.request,
                policy=ticket.pin.policy,
                tokens=ticket.queued.tokens,
            )
            for ticket in tickets
        ]
        if self._watch is not None:
            self._watch.begin(_now_us())
        try:
            outcome = await asyncio.get_running_loop().run_in_executor(self._compute, self._step.run, members)
        finally:
            if self._watch is not None:
                self._watch.end(_now_us(), len(members))
        self._settle(outcome)

    def _settle(self, outcome: PredictOutcome) -> None:
        """Charge what was measured, answer everybody, learn from the batch."""
        now_us, busy_us = _now_us(), outcome.measured.busy_us
        shares = self._usage.add(outcome).shares
        for member in outcome.members:
            share_us = shares[member.request_id]
            self.queue.complete(member.request_id, charge_us=share_us)
            ticket = self._tickets[member.request_id]
            if member.failure is not None:
                self._refuse(ticket, member.failure)
                continue
            waited_us = max(0, now_us - ticket.queued.arrived_us - busy_us)
            self._answer(ticket, _reply(ticket, member, outcome, queue_us=waited_us, share_us=share_us))
        if outcome.measured.shared_us:
            tokens = sum(member.tokens for member in outcome.members)
            self.measured.observe(self.queue, outcome.members[0].policy.group_key, tokens=tokens, busy_us=busy_us)

    def _answer(self, ticket: _Ticket, reply: PredictReply) -> None:
        self._close(ticket)
        if not ticket.reply.done():
            ticket.reply.set_result(reply)
            if self._watch is not None:
                now_us = _now_us()
                self._watch.answered(now_us, now_us - ticket.queued.arrived_us)

    def _refuse(self, ticket: _Ticket, error: InferenceError) -> None:
        self._close(ticket)
        if not ticket.reply.done():
            ticket.reply.set_exception(error)

    def _close(self, ticket: _Ticket) -> None:
        del self._tickets[ticket.queued.request_id]
        self.policies.unpin(ticket.pin)

    def _close_all(self) -> None:
        """Refuse whatever is left; hold nothing any more."""
        self._stopping = True
        for ticket in list(self._tickets.values()):
            self.queue.withdraw(ticket.queued.request_id)
            self._refuse(ticket, ServiceStopped())
        if self._own_compute is not None:
            self._own_compute.shutdown(wait=False)

    def _expire(self) -> None:
        for request_id in self.queue.expire(_now_us()):
            ticket = self._tickets[request_id]
            self._refuse(ticket, DeadlineMissed(f"it waited {ticket.request.timeout_us} us for its turn"))

    async def _idle(self) -> None:
        """Sleep until something arrives, is due, or is to be written."""
        now_us = _now_us()
        if self._usage.behind:
            await self._changed.wait(_RECHECK_S)
            return
        times = [time for time in (self.queue.next_wakeup_us(now_us), self._usage.due_us()) if time is not None]
        await self._changed.wait(max(0, min(times) - now_us) / 1e6 if times else None)


def _reply(
    ticket: _Ticket, member: PredictMember, outcome: PredictOutcome, *, queue_us: int, share_us: int
) -> PredictReply:
    assert member.decision is not None
    return PredictReply(
        actions_BHA=member.decision.actions_BHA,
        policy_version=ticket.pin.version,
        group_size=len(outcome.members),
        queue_us=queue_us,
        compute_us=outcome.measured.busy_us,
        share_us=share_us,
        handles=member.handles,
        trace=member.decision.trace,
        value=member.decision.value,
    )


def _now_us() -> int:
    """Microseconds that never go back."""
    return time.monotonic_ns() // 1000
