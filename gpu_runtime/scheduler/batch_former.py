"""Fair group batching: the least served tenant leads, others of its class ride within a window.

S = a tenant's measured service over its weight; V = the leader's S; D = the window; T = the patience; B = the limit.

1. Who arrives with nothing waiting enters at max(S, V).
2. The tenant of smallest S leads; its first request fixes the compatibility class.
3. First requests of that class from tenants with S <= V + D ride along, smallest S first, up to B tokens; each
   pick raises S by an estimate, which the measurement replaces.
4. A batch fires when B is waiting, or when some request has waited T (no time at all while the device is busy).

With U = the largest charge of one tenant in one batch over its weight, and batches settled one after the other:
V never falls, and max S - min S over waiting tenants is at most D + U. So for two tenants that wait throughout any
interval, however long, service over weight differs by at most 2(D + U): riding can't be turned into a larger share,
a flood can't starve anyone, and the device idles at most T while something waits.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Generic

from gpu_runtime.protocol.ids import TenantId
from gpu_runtime.scheduler.backlog import Backlog, K, Request
from gpu_runtime.scheduler.costs import CostModel
from gpu_runtime.scheduler.errors import require
from gpu_runtime.scheduler.fair_share import FairShare
from gpu_runtime.scheduler.tenant_heap import TenantHeap

MISFITS_MAX = 16  # riders too large for the rest of a batch that are passed over before it counts as full


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick(Generic[K]):
    """One request of a batch, and the tenant's tentative counter when it was chosen."""

    request: Request[K]
    counter_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Generic[K]):
    """Requests that run together. The first is the leader's; no rider's counter was above ``edge_us``."""

    group_key: str
    picks: tuple[Pick[K], ...]
    edge_us: int  # V + D


class BatchFormer(Generic[K]):
    """Forms batches for one device out of the requests of any number of tenants.

    Complexity: one heap of tenants per compatibility class, so no decision looks at all tenants. ``offer``,
    ``discard`` and ``settle`` are O(c log n), ``take`` is O(c + b log n), with n backlogged tenants, b picks
    and c the compatibility classes (one per resident base model).
    """

    def __init__(self, *, batch_limit_tokens: int, window_us: int, wait_us: int) -> None:
        require(wait_us >= 0, "wait_us", wait_us, "zero or more")
        require(batch_limit_tokens > 0, "batch_limit_tokens", batch_limit_tokens, "above zero")
        self._limit_tokens = batch_limit_tokens
        self._class_limits: dict[str, int] = {}  # of classes whose own limit was measured
        self.set_window(window_us)
        self._wait_us = wait_us
        self._backlog: Backlog[K] = Backlog()
        self._fair = FairShare()
        self._costs = CostModel()
        self._heaps: defaultdict[str, TenantHeap] = defaultdict(TenantHeap)
        self._held: dict[K, tuple[Request[K], int]] = {}  # taken, not settled; with the estimate

    @property
    def backlog(self) -> Backlog[K]:
        return self._backlog

    @property
    def fair(self) -> FairShare:
        return self._fair

    @property
    def in_flight(self) -> frozenset[K]:
        """Requests that were taken and are not settled."""
        return frozenset(self._held)

    @property
    def window_us(self) -> int:
        """D: how far above the leader a rider may be."""
        return self._window_us

    def set_window(self, window_us: int) -> None:
        """Change D, from the next decision on; the bounds above hold with the largest D of an interval."""
        require(window_us >= 0, "window_us", window_us, "zero or more")
        self._window_us = window_us

    def holds(self, request_id: K) -> bool:
        """The request was taken and is not settled."""
        return request_id in self._held

    @property
    def busy(self) -> bool:
        """A batch was taken and is not settled: whatever arrives now gathers without waiting further."""
        return bool(self._held)

    def batch_limit_tokens(self, group_key: str) -> int:
        """B: a full batch of this class."""
        return self._class_limits.get(group_key, self._limit_tokens)

    def set_batch_limit(self, group_key: str, tokens: int) -> None:
        """Change B of one class, from the next decision on."""
        require(tokens > 0, "batch_limit_tokens", tokens, "above zero")
        self._class_limits[group_key] = tokens

    def fire_at_us(self, now_us: int) -> int:
        """When a request that arrives now wants its batch to start: T from now, at once while busy."""
        return now_us if self.busy else now_us + self._wait_us

    def next_fire_us(self) -> int | None:
        return self._backlog.fire_at_us()

    def set_weight(self, tenant_id: TenantId, weight: int) -> None:
        self._fair.set_weight(tenant_id, weight)
        self._publish(tenant_id)

    def offer(self, request: Request[K]) -> None:
        """A request is ready to run."""
        if not self._backlog.group_keys(request.tenant_id):
            self._fair.enter(request.tenant_id)
        self._backlog.add(request)
        self._publish(request.tenant_id)

    def discard(self, request_id: K) -> None:
        """A request is no longer wanted, or a taken one did not run to its end. Nothing is charged."""
        if request_id in self._backlog:
            self._remove(request_id)
        elif request_id in self._held:
            self._publish(self._unhold(request_id).tenant_id)

    def take(self, *, now_us: int) -> Batch[K] | None:
        """Form the next batch, or None when nothing waits or it pays to wait for company.

        Fires when a full batch of the leader's class is waiting, or when the longest waiting request of any
        class has waited T, so the device idles at most T while something waits.
        """
        leader = self._leader()
        if leader is None:
            return None
        first = self._backlog.oldest(leader)
        fire_at_us = self._backlog.fire_at_us()
        assert fire_at_us is not None
        if now_us < fire_at_us and not self._is_full(first.group_key):
            return None
        edge_us = self._fair.lead(leader) + self._window_us
        picks = [self._pick(first)]
        self._add_riders(picks, edge_us)
        return Batch(group_key=first.group_key, picks=tuple(picks), edge_us=edge_us)

    def settle(self, request_id: K, *, charge_us: int) -> None:
        """A taken request has run: replace its estimate by the measured charge."""
        require(charge_us >= 0, "charge_us", charge_us, "zero or more")
        request = self._unhold(request_id)
        self._costs.observe(request.tenant_id, request.tokens, charge_us)
        self.charge(request.tenant_id, charge_us)

    def charge(self, tenant_id: TenantId, charge_us: int) -> None:
        """Charge measured time that belongs to no taken request any more, e.g. of a job cancelled meanwhile."""
        self._fair.charge(tenant_id, charge_us)
        self._publish(tenant_id)

    def dump(self) -> dict[str, Any]:
        """The counters; requests are offered again by their owner."""
        return {"fair": self._fair.dump(), "costs": self._costs.dump()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over dumped counters, before anything is offered."""
        assert not self._backlog
        assert not self._held
        self._fair = FairShare.load(state["fair"])
        self._costs = CostModel(**state["costs"])

    def _is_full(self, group_key: str) -> bool:
        return self._backlog.tokens(group_key) >= self.batch_limit_tokens(group_key)

    def _leader(self) -> TenantId | None:
        tops = [tag for heap in self._heaps.values() if (tag := heap.top()) is not None]
        return min(tops).tenant_id if tops else None

    def _add_riders(self, picks: list[Pick[K]], edge_us: int) -> None:
        group_key = picks[0].request.group_key
        heap = self._heaps[group_key]
        left_tokens = self.batch_limit_tokens(group_key) - picks[0].request.tokens
        misfits: list[TenantId] = []
        while left_tokens > 0 and len(misfits) < MISFITS_MAX:
            tag = heap.top()
            if tag is None or tag.counter_us > edge_us:
                break
            request = self._backlog.first(tag.tenant_id, group_key)
            assert request is not None
            if request.tokens > left_tokens:
                misfits.append(tag.tenant_id)
                heap.discard(tag.tenant_id)
                continue
            left_tokens -= request.tokens
            picks.append(self._pick(request))
        for tenant_id in misfits:
            self._publish(tenant_id)

    def _pick(self, request: Request[K]) -> Pick[K]:
        counter_us = self._fair.tag(request.tenant_id).counter_us
        estimate_us = self._costs.estimate_us(request.tenant_id, request.tokens)
        self._remove(request.request_id)
        self._held[request.request_id] = (request, estimate_us)
        self._fair.hold(request.tenant_id, estimate_us)
        self._publish(request.tenant_id)
        return Pick(request=request, counter_us=counter_us)

    def _remove(self, request_id: K) -> None:
        request = self._backlog.remove(request_id)
        if self._backlog.first(request.tenant_id, request.group_key) is None:
            self._heaps[request.group_key].discard(request.tenant_id)

    def _unhold(self, request_id: K) -> Request[K]:
        request, estimate_us = self._held.pop(request_id)
        self._fair.unhold(request.tenant_id, estimate_us)
        return request

    def _publish(self, tenant_id: TenantId) -> None:
        """Enter the tenant's current tag in the heap of every class it waits in."""
        for group_key in self._backlog.group_keys(tenant_id):
            self._heaps[group_key].put(self._fair.tag(tenant_id))
