"""One inference device in virtual time: clients ask, a queue decides, a measured curve says how long it takes."""

import heapq
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpu_runtime.scheduler.accounting import split_exactly
from gpu_runtime.scheduler.inference_queue import WINDOW_BATCHES, InferenceBatch
from gpu_runtime.scheduler.knee import Knee


class Queue(Protocol):
    """What the world needs of a queue: the fair one, or a first-in-first-out one to compare with."""

    def arrive(self, *, now_us: int, request_id, tenant_id, session_id: str, group_key: str, tokens: int): ...

    def next_batch(self, now_us: int) -> InferenceBatch | None: ...

    def next_wakeup_us(self, now_us: int) -> int | None: ...

    def complete(self, request_id, *, charge_us: int) -> None: ...

    def set_batch_limit(self, group_key: str, tokens: int) -> None: ...

    def set_window(self, window_us: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Busy microseconds of a batch by its tokens; straight lines between the measured points, and beyond them."""

    points: tuple[tuple[int, float], ...]

    def busy_us(self, tokens: int) -> int:
        if len(self.points) == 1:
            return round(self.points[0][1])
        at = min(max(1, bisect_left(self.points, (tokens, 0.0))), len(self.points) - 1)
        (low, low_us), (high, high_us) = self.points[at - 1], self.points[at]
        return max(1, round(low_us + (high_us - low_us) * (tokens - low) / (high - low)))

    def best_rate(self) -> float:
        """Tokens per microsecond at the fastest measured batch: the device's capacity."""
        return max(tokens / us for tokens, us in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One tenant: ``sessions`` environments that wait for each answer and think, or Poisson arrivals.

    Thinking takes half to three halves of ``think_us``.
    """

    tenant_id: str
    sessions: int = 1
    think_us: int = 0
    tokens: int = 1
    rate_per_s: float | None = None  # open loop: every arrival is a session of its own
    from_us: int = 0


@dataclass
class InferenceWorld:
    """``seed`` decides everything. ``knee`` None: the queue's batch limit stays as it is."""

    queue: Queue
    curve: Curve
    clients: Sequence[Client]
    seed: int = 0
    knee: Knee | None = None
    now_us: int = 0
    latency_us: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    waits_us: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    batches: list[int] = field(default_factory=list)  # requests in each
    idle_with_backlog_us: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._events: list[tuple[int, int, str, str]] = []  # time, number, tenant, session
        self._clients = {client.tenant_id: client for client in self.clients}
        self._asked: dict[str, tuple[int, str, str]] = {}
        self._made = 0
        for client in self.clients:
            if client.rate_per_s is not None:
                self._next_arrival(client, client.from_us)
            else:
                for session in range(client.sessions):
                    self._ask_at(client.from_us, client.tenant_id, f"s{session}")

    def run(self, until_us: int) -> "InferenceWorld":
        while self.now_us < until_us:
            self._admit(self.now_us)
            batch = self.queue.next_batch(self.now_us)
            if batch is not None:
                self._serve(batch)
            elif not self._sleep():
                break
        return self

    def _serve(self, batch: InferenceBatch) -> None:
        tokens = {request.request_id: request.tokens for request in batch.requests}
        busy_us = self.curve.busy_us(sum(tokens.values()))
        end_us = self.now_us + busy_us
        for request_id in tokens:
            asked_us, tenant_id, _ = self._asked[request_id]
            self.waits_us[tenant_id].append(self.now_us - asked_us)
        while self._events and self._events[0][0] <= end_us:
            self.now_us = max(self.now_us, self._events[0][0])
            self._admit(self.now_us)
        self.now_us = end_us
        for request_id, share_us in split_exactly(busy_us, tokens).items():
            self.queue.complete(request_id, charge_us=share_us)
            asked_us, tenant_id, session = self._asked.pop(request_id)
            self.latency_us[tenant_id].append(end_us - asked_us)
            client = self._clients[tenant_id]
            if client.rate_per_s is None:
                pause_us = round(client.think_us * self._random.uniform(0.5, 1.5))
                self._ask_at(end_us + pause_us, tenant_id, session)
        self.batches.append(len(tokens))
        if self.knee is not None:
            self.knee.observe(sum(tokens.values()), busy_us)
            self.queue.set_batch_limit(batch.group_key, self.knee.limit_tokens)
            if (batch_us := self.knee.batch_us) is not None:
                self.queue.set_window(WINDOW_BATCHES * batch_us)

    def _sleep(self) -> bool:
        """Nothing fires: go to the next arrival or the end of a wait. False when nothing is left to happen."""
        wakeup_us = self.queue.next_wakeup_us(self.now_us)
        times = [time for time in (wakeup_us, self._events[0][0] if self._events else None) if time is not None]
        if not times:
            return False
        until_us = max(self.now_us, min(times))
        if self._asked:
            self.idle_with_backlog_us += until_us - self.now_us
        self.now_us = until_us
        return True

    def _admit(self, now_us: int) -> None:
        while self._events and self._events[0][0] <= now_us:
            asked_us, _, tenant_id, session = heapq.heappop(self._events)
            client = self._clients[tenant_id]
            self._made += 1
            request_id = f"{tenant_id}#{self._made}"
            self._asked[request_id] = (asked_us, tenant_id, session)
            self.queue.arrive(
                now_us=asked_us,
                request_id=request_id,
                tenant_id=tenant_id,
                session_id=session,
                group_key="base",
                tokens=client.tokens,
            )
            if client.rate_per_s is not None:
                self._next_arrival(client, asked_us)

    def _next_arrival(self, client: Client, after_us: int) -> None:
        assert client.rate_per_s is not None
        gap_us = round(self._random.expovariate(client.rate_per_s / 1e6))
        self._ask_at(after_us + gap_us, client.tenant_id, f"open{self._made}")

    def _ask_at(self, time_us: int, tenant_id: str, session: str) -> None:
        self._made += 1
        heapq.heappush(self._events, (time_us, self._made, tenant_id, session))


class FifoQueue:
    """The published rule: the largest first-in-first-out prefix of one class, up to T and B. For comparison only."""

    def __init__(self, *, batch_limit_tokens: int, wait_us: int = 0) -> None:
        self._limit_tokens, self._wait_us = batch_limit_tokens, wait_us
        self._line: list = []
        self._running: set[str] = set()

    def set_batch_limit(self, group_key: str, tokens: int) -> None:
        self._limit_tokens = tokens

    def set_window(self, window_us: int) -> None:
        """No fairness, no window."""

    def arrive(self, *, now_us: int, request_id, tenant_id, session_id: str, group_key: str, tokens: int) -> None:
        self._line.append(_Waiting(request_id, group_key, tokens, now_us))

    def next_batch(self, now_us: int) -> InferenceBatch | None:
        if self._running or not self._line:
            return None
        taken, room = 0, self._limit_tokens
        for request in self._line:
            if request.group_key != self._line[0].group_key or (taken and request.tokens > room):
                break
            taken, room = taken + 1, room - request.tokens
        full = taken < len(self._line) or room <= 0
        if not full and now_us < self._line[0].arrived_us + self._wait_us:
            return None
        requests, self._line = self._line[:taken], self._line[taken:]
        self._running = {request.request_id for request in requests}
        return InferenceBatch(group_key=requests[0].group_key, requests=tuple(requests))

    def next_wakeup_us(self, now_us: int) -> int | None:
        return max(now_us, self._line[0].arrived_us + self._wait_us) if self._line and not self._running else None

    def complete(self, request_id, *, charge_us: int) -> None:
        self._running.remove(request_id)


@dataclass(frozen=True, slots=True)
class _Waiting:
    request_id: str
    group_key: str
    tokens: int
    arrived_us: int


def percentile(values: Sequence[int], share: float) -> float:
    """Nearest rank; NaN for no values."""
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) if ordered else float("nan")
