"""An inference queue and its pinned policy versions under audit: what must hold after every single event.

The model beside it is as dumb as possible: lists of what is waiting, running, published and pinned.
"""

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpu_runtime.inference.errors import PinReleased, UnknownSlot, UnknownVersion
from gpu_runtime.inference.policy_store import Pin, PolicyStore
from gpu_runtime.scheduler import invariants
from gpu_runtime.scheduler.errors import InferenceQueueFull
from gpu_runtime.scheduler.inference_queue import InferenceLimits, InferenceQueue
from gpu_runtime.scheduler.invariants import InvariantBroken

LIMITS = InferenceLimits(per_session=3, per_tenant=8, total=12, guaranteed_per_tenant=2)
LIMIT_TOKENS, WINDOW_US, KEEP = 20, 500, 2

tenants = st.sampled_from("abc")
slots = st.sampled_from(["p", "q"])


@dataclass(frozen=True)
class Weights:
    """A policy that says which one it is."""

    tenant_id: str
    slot_id: str
    version: int


@dataclass
class Admitted:
    session: tuple[str, str]
    deadline_us: int | None
    expected: Weights
    pin: Pin[Weights]


def hold(condition: bool, promise: str, detail: object = "") -> None:
    if not condition:
        raise InvariantBroken(f"{promise}: {detail}")


class InferenceMachine(RuleBasedStateMachine):
    """Subclasses plant faults by overriding the two factories."""

    def make_queue(self) -> InferenceQueue:
        return InferenceQueue(LIMITS, batch_limit_tokens=LIMIT_TOKENS, window_us=WINDOW_US, wait_us=0)

    def make_store(self) -> PolicyStore[Weights]:
        return PolicyStore(keep=KEEP)

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.store = self.make_queue(), self.make_store()
        self.now_us = self.made = 0
        self.waiting: dict[str, Admitted] = {}  # in order of arrival
        self.running: dict[str, Admitted] = {}
        self.published: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self.ended: set[str] = set()
        for tenant_id in "abc":
            for slot_id in "pq":
                self.store.open(tenant_id, slot_id)

    # --- events ---

    @initialize(versions=st.integers(0, 3))
    def begin(self, versions: int) -> None:
        """Usually every slot has some versions already."""
        for tenant_id in "abc" if versions else "":
            for slot_id in "pq":
                for _ in range(versions):
                    self.publish(tenant_id, slot_id, 1)

    @rule(
        tenant_id=tenants,
        requests=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 6)), min_size=2, max_size=9),
    )
    def crowd(self, tenant_id: str, requests: list[tuple[str, int]]) -> None:
        """Many requests at once, so that lines and batches grow."""
        for session, tokens in requests:
            self.ask(tenant_id, "p", session, tokens, "one", None, 0)

    @rule(tenant_id=tenants, slot_id=slots, jump=st.integers(1, 3))
    def publish(self, tenant_id: str, slot_id: str, jump: int) -> None:
        """A newer version, whatever waits or runs."""
        versions = self.published[tenant_id, slot_id]
        version = (versions[-1] if versions else 0) + jump
        self.store.publish(tenant_id, slot_id, version, Weights(tenant_id, slot_id, version))
        versions.append(version)

    @rule(
        tenant_id=tenants,
        slot_id=slots,
        session=st.sampled_from("xyz"),
        tokens=st.integers(1, 25),
        group_key=st.sampled_from(["one", "two"]),
        patience_us=st.none() | st.integers(1, 50),
        back=st.integers(0, 3),
    )
    def ask(self, tenant_id, slot_id, session, tokens, group_key, patience_us, back) -> None:
        """A request for the newest version, or one ``back`` versions before it; refusals must be justified."""
        versions = self.published[tenant_id, slot_id]
        wanted = "latest" if back == 0 else (versions[-1 - back] if back < len(versions) else 10_000)
        expected = versions[-1] if versions and wanted == "latest" else wanted
        kept = expected in versions[-KEEP:] or any(
            self._is(other, tenant_id, slot_id, expected) for other in self._live()
        )
        try:
            pin = self.store.pin(tenant_id, slot_id, wanted)
        except UnknownVersion:
            hold(not kept, "a version that is kept can be pinned", expected)
            return
        hold(kept, "only versions that are kept can be pinned", expected)
        self._admit(tenant_id, session, pin, Weights(tenant_id, slot_id, expected), tokens, group_key, patience_us)

    def _admit(self, tenant_id, session, pin, expected, tokens, group_key, patience_us) -> None:
        self.made += 1
        request_id, key = f"{tenant_id}{self.made}", (tenant_id, session)
        deadline_us = None if patience_us is None else self.now_us + patience_us
        try:
            self.queue.arrive(
                now_us=self.now_us,
                request_id=request_id,
                tenant_id=tenant_id,
                session_id=session,
                group_key=group_key,
                tokens=tokens,
                deadline_us=deadline_us,
            )
        except InferenceQueueFull as refusal:
            self.store.unpin(pin)
            hold(refusal.reason in self._reasons(key), "a refusal names a bound that is reached", refusal.reason)
            return
        hold(not self._reasons(key), "bounds hold", self._reasons(key))
        admitted = Admitted(session=key, deadline_us=deadline_us, expected=expected, pin=pin)
        self.waiting[request_id] = admitted

    @rule(after_us=st.integers(0, 60))
    def time_passes(self, after_us: int) -> None:
        self.now_us += after_us
        due = {
            request_id
            for request_id, admitted in self.waiting.items()
            if admitted.deadline_us is not None and admitted.deadline_us <= self.now_us
        }
        expired = self.queue.expire(self.now_us)
        hold(set(expired) == due and len(expired) == len(due), "exactly what is due expires", (expired, due))
        for request_id in expired:
            self._end(request_id, self.waiting)

    @rule()
    def batch(self) -> None:
        """An idle device never waits while something does; a busy one starts nothing."""
        self.time_passes(0)
        before = invariants.Waiting.of(self.queue.former)
        batch = self.queue.next_batch(self.now_us)
        if self.running:
            hold(batch is None, "one batch at a time", batch)
            return
        hold((batch is None) == (not self.waiting), "an idle device starts whatever waits", self.waiting)
        if batch is None:
            return
        heads = self._heads()
        for request in batch.requests:
            hold(heads.get(request.session) == request.request_id, "sessions are in order", (request, heads))
            hold(request.group_key == batch.group_key, "one class per batch", request)
        least = min(before.tags.values())
        hold(batch.requests[0].session.tenant_id == least.tenant_id, "the least served leads", least)
        total = sum(request.tokens for request in batch.requests)
        hold(total <= LIMIT_TOKENS or len(batch.requests) == 1, "batch limit", total)
        for request in batch.requests:
            self.running[request.request_id] = self.waiting.pop(request.request_id)

    @precondition(lambda self: self.running)
    @rule(charges=st.lists(st.integers(0, 2_000), min_size=1, max_size=6))
    def answer(self, charges: list[int]) -> None:
        """The batch is over: every request acted with the very version it was admitted with."""
        for at, (request_id, admitted) in enumerate(list(self.running.items())):
            hold(admitted.pin.policy == admitted.expected, "the pinned version acts", admitted)
            self.queue.complete(request_id, charge_us=charges[at % len(charges)])
            self._end(request_id, self.running)

    @precondition(lambda self: self.waiting or self.running)
    @rule(at=st.integers(0, 100))
    def withdraw(self, at: int) -> None:
        ids = [*self.waiting, *self.running]
        request_id = ids[at % len(ids)]
        gone = self.queue.withdraw(request_id)
        hold(gone == (request_id in self.waiting), "what waits can be withdrawn, what runs can't", request_id)
        if gone:
            self._end(request_id, self.waiting)

    @rule(tenant_id=tenants, slot_id=slots)
    def reopen(self, tenant_id: str, slot_id: str) -> None:
        """A slot goes away and another takes its name; who is in flight finishes on the old one."""
        self.store.close(tenant_id, slot_id)
        try:
            self.store.pin(tenant_id, slot_id)
        except UnknownSlot:
            pass
        else:
            hold(False, "a closed slot can't be pinned")
        self.store.open(tenant_id, slot_id)
        start = max(self.published[tenant_id, slot_id], default=0) + 1_000
        self.published[tenant_id, slot_id] = []
        self.store.publish(tenant_id, slot_id, start, Weights(tenant_id, slot_id, start))
        self.published[tenant_id, slot_id].append(start)

    # --- always ---

    @invariant()
    def pins_are_what_is_live(self) -> None:
        hold(self.store.pinned() == len(self.waiting) + len(self.running), "one pin per live request")
        for admitted in self._live():
            hold(admitted.pin.held and admitted.pin.policy == admitted.expected, "nothing pinned is freed", admitted)

    @invariant()
    def nothing_is_kept_for_nobody(self) -> None:
        wanted = {admitted.expected for admitted in self._live()}
        for (tenant_id, slot_id), versions in self.published.items():
            newest = {Weights(tenant_id, slot_id, version) for version in versions[-KEEP:]}
            wanted |= newest
            kept = {Weights(tenant_id, slot_id, version) for version in self.store.versions(tenant_id, slot_id)}
            hold(newest <= kept <= wanted, "kept = newest K + pinned", (kept, wanted))
        hold(self.store.kept() == len(wanted), "kept = newest K + pinned", (self.store.kept(), wanted))

    @invariant()
    def the_queue_counts_right(self) -> None:
        hold(self.queue.depth() == len(self.waiting), "depth", (self.queue.depth(), len(self.waiting)))
        hold(self.queue.busy == bool(self.running), "busy while a batch runs")
        wakeup_us = self.queue.next_wakeup_us(self.now_us)
        hold(wakeup_us is not None or self.running or not self.waiting, "somebody wakes the device")

    # --- the model ---

    def _live(self) -> list[Admitted]:
        return [*self.waiting.values(), *self.running.values()]

    @staticmethod
    def _is(admitted: Admitted, tenant_id: str, slot_id: str, version: object) -> bool:
        return admitted.expected == Weights(tenant_id, slot_id, version)  # type: ignore[arg-type]

    def _heads(self) -> dict[tuple[str, str], str]:
        heads: dict[tuple[str, str], str] = {}
        for request_id, admitted in self.waiting.items():
            heads.setdefault(admitted.session, request_id)
        return heads

    def _reasons(self, session: tuple[str, str]) -> set[str]:
        """Bounds at which one more request of this session must be refused."""
        live = [admitted.session for admitted in self._live()]
        own = sum(other[0] == session[0] for other in live)
        reached = {
            "session_requests": live.count(session) >= LIMITS.per_session,
            "tenant_requests": own >= LIMITS.per_tenant,
            "total_requests": len(live) >= LIMITS.total and own >= LIMITS.guaranteed_per_tenant,
        }
        return {reason for reason, is_reached in reached.items() if is_reached}

    def _end(self, request_id: str, among: dict[str, Admitted]) -> None:
        hold(request_id not in self.ended, "every request ends once", request_id)
        self.ended.add(request_id)
        admitted = among.pop(request_id)
        self.store.unpin(admitted.pin)
        for use in (lambda: admitted.pin.policy, lambda: self.store.unpin(admitted.pin)):
            try:
                use()
            except PinReleased:
                continue
            hold(False, "a released pin is of no use", admitted)
