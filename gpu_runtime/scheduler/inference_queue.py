"""The inference queue: predict requests of all tenants become fair group batches, continuously.

The continuous rule: an idle device starts at once with what is there; while it is busy requests gather; the next
batch takes them up to the knee of its throughput curve. T (patience of an idle device) and B (tokens of a batch)
remain settings: T = 0 and B at the knee is the rule, and no fixed pair is better at every load.

Between tenants the rule is that of ``batch_former``; within a session requests run one after the other, in order.
"""

import heapq
from dataclasses import dataclass

from gpu_runtime.protocol.ids import RequestId, TenantId
from gpu_runtime.scheduler.backlog import Request
from gpu_runtime.scheduler.batch_former import BatchFormer
from gpu_runtime.scheduler.errors import DuplicateRequest, InferenceQueueFull, UnknownRequest, require
from gpu_runtime.scheduler.sessions import SessionKey, SessionLines

WINDOW_BATCHES = 2
"""D in full batches. Who comes back from idle enters at the last leader's counter, one batch below a tenant that was
just served alone; with one batch more of window that tenant fills the batch behind the newcomer, which leads anyhow.
In virtual time, a flood beside a light tenant: one batch costs about 5 % of the answers, two about 1 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceLimits:
    """How many requests may wait or run. They bound memory; shares are the fair rule's business.

    ``total`` never refuses a tenant that has fewer than ``guaranteed_per_tenant``: a flood fills the queue for itself.
    """

    per_session: int = 4
    per_tenant: int = 1_024
    total: int = 8_192
    guaranteed_per_tenant: int = 4

    def __post_init__(self) -> None:
        for field in ("per_session", "per_tenant", "total", "guaranteed_per_tenant"):
            require(getattr(self, field) > 0, field, getattr(self, field), "above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """One predict request as the scheduler sees it."""

    request_id: RequestId
    session: SessionKey
    group_key: str  # compatibility class: the resident base
    tokens: int
    arrived_us: int
    arrived_seq: int
    fire_at_us: int
    deadline_us: int | None  # not worth starting from then on


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceBatch:
    """Requests of one packed forward, the leader's first; at most one of a session."""

    group_key: str
    requests: tuple[InferenceRequest, ...]


class InferenceQueue:
    """The requests of one device. Time is an argument; ``complete`` of a whole batch makes the device idle again."""

    def __init__(self, limits: InferenceLimits, *, batch_limit_tokens: int, window_us: int, wait_us: int = 0) -> None:
        self._limits = limits
        self._former: BatchFormer[RequestId] = BatchFormer(
            batch_limit_tokens=batch_limit_tokens, window_us=window_us, wait_us=wait_us
        )
        self._requests: dict[RequestId, InferenceRequest] = {}
        self._sessions = SessionLines()
        self._deadlines: list[tuple[int, RequestId]] = []
        self._arrived_seq = 0

    @property
    def former(self) -> BatchFormer[RequestId]:
        return self._former

    @property
    def busy(self) -> bool:
        """A batch runs: requests gather."""
        return self._former.busy

    def batch_limit_tokens(self, group_key: str) -> int:
        """B of one base."""
        return self._former.batch_limit_tokens(group_key)

    def set_batch_limit(self, group_key: str, tokens: int) -> None:
        """The knee of one base was measured anew."""
        self._former.set_batch_limit(group_key, tokens)

    def set_window(self, window_us: int) -> None:
        """D; see WINDOW_BATCHES."""
        self._former.set_window(window_us)

    def set_weight(self, tenant_id: TenantId, weight: int) -> None:
        self._former.set_weight(tenant_id, weight)

    def depth(self) -> int:
        """Requests that wait."""
        return len(self._requests) - len(self._former.in_flight)

    def waiting(self) -> tuple[InferenceRequest, ...]:
        in_flight = self._former.in_flight
        return tuple(request for request in self._requests.values() if request.request_id not in in_flight)

    def arrive(
        self,
        *,
        now_us: int,
        request_id: RequestId,
        tenant_id: TenantId,
        session_id: str,
        group_key: str,
        tokens: int,
        deadline_us: int | None = None,
    ) -> InferenceRequest:
        """Admit a request. Raises InferenceQueueFull, DuplicateRequest or InvalidRequest; nothing has changed then."""
        require(tokens > 0, "tokens", tokens, "above zero")
        require(deadline_us is None or deadline_us > now_us, "deadline_us", deadline_us, f"after now ({now_us})")
        if request_id in self._requests:
            raise DuplicateRequest(f"request {request_id} waits or runs already")
        session = SessionKey(tenant_id, session_id)
        self._refuse_beyond_limits(session)
        self._arrived_seq += 1
        request = InferenceRequest(
            request_id=request_id,
            session=session,
            group_key=group_key,
            tokens=tokens,
            arrived_us=now_us,
            arrived_seq=self._arrived_seq,
            fire_at_us=self._former.fire_at_us(now_us),
            deadline_us=deadline_us,
        )
        self._requests[request_id] = request
        self._sessions.add(session, request_id)
        if deadline_us is not None:
            heapq.heappush(self._deadlines, (deadline_us, request_id))
        if self._sessions.head(session) == request_id:
            self._offer(request)
        return request

    def expire(self, now_us: int) -> tuple[RequestId, ...]:
        """End waiting requests whose deadline has come; what runs already runs to its end. Ask before each batch."""
        ended = []
        while (deadline_us := self._next_deadline_us()) is not None and deadline_us <= now_us:
            _, request_id = heapq.heappop(self._deadlines)
            self._end(self._requests[request_id])
            ended.append(request_id)
        return tuple(ended)

    def withdraw(self, request_id: RequestId) -> bool:
        """Nobody wants the answer any more. False when the request is unknown, or runs: that can't be undone."""
        if request_id not in self._requests or self._former.holds(request_id):
            return False
        self._end(self._requests[request_id])
        return True

    def next_batch(self, now_us: int) -> InferenceBatch | None:
        """The next fair batch; None while the device is busy, nothing waits, or T is not over."""
        if self._former.busy:
            return None
        batch = self._former.take(now_us=now_us)
        if batch is None:
            return None
        requests = tuple(self._requests[pick.request.request_id] for pick in batch.picks)
        return InferenceBatch(group_key=batch.group_key, requests=requests)

    def next_wakeup_us(self, now_us: int) -> int | None:
        """When to ask again though nothing happened: T is over, or a deadline comes."""
        fire_at_us = None if self._former.busy else self._former.next_fire_us()
        times = [time for time in (self._next_deadline_us(), fire_at_us) if time is not None]
        return max(now_us, min(times)) if times else None

    def complete(self, request_id: RequestId, *, charge_us: int) -> None:
        """A request of the batch has run, whatever came of it; its tenant is charged what was measured."""
        if not self._former.holds(request_id):
            raise UnknownRequest(f"request {request_id} is not running")
        self._former.settle(request_id, charge_us=charge_us)
        self._end(self._requests[request_id])

    def _refuse_beyond_limits(self, session: SessionKey) -> None:
        limits, own = self._limits, self._sessions.count_of(session.tenant_id)
        if (count := self._sessions.count(session)) >= limits.per_session:
            raise InferenceQueueFull(
                f"session {session.session_id} has {count} requests waiting or running, as many as it may",
                reason="session_requests",
            )
        if own >= limits.per_tenant:
            raise InferenceQueueFull(
                f"the tenant has {own} requests waiting or running, as many as it may", reason="tenant_requests"
            )
        if len(self._requests) >= limits.total and own >= limits.guaranteed_per_tenant:
            raise InferenceQueueFull(
                f"{len(self._requests)} requests wait or run, as many as the service takes", reason="total_requests"
            )

    def _next_deadline_us(self) -> int | None:
        """The earliest deadline of a waiting request; those of ended and running ones are dropped on the way."""
        while self._deadlines:
            deadline_us, request_id = self._deadlines[0]
            request = self._requests.get(request_id)
            if request is not None and request.deadline_us == deadline_us and not self._former.holds(request_id):
                return deadline_us
            heapq.heappop(self._deadlines)
        return None

    def _end(self, request: InferenceRequest) -> None:
        """Forget a request; the next of its session may run."""
        was_head = self._sessions.head(request.session) == request.request_id
        self._former.discard(request.request_id)
        self._sessions.remove(request.session, request.request_id)
        del self._requests[request.request_id]
        if was_head and (head := self._sessions.head(request.session)) is not None:
            self._offer(self._requests[head])

    def _offer(self, request: InferenceRequest) -> None:
        self._former.offer(
            Request(
                request_id=request.request_id,
                tenant_id=request.session.tenant_id,
                group_key=request.group_key,
                tokens=request.tokens,
                order=(request.arrived_seq,),
                fire_at_us=request.fire_at_us,
            )
        )
