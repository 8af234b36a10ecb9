"""A device, its batch former and a crowd of tenants in virtual time; every decision is audited."""

import hashlib
import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from gpu_runtime.scheduler import invariants
from gpu_runtime.scheduler.accounting import MeasuredStep, attribute
from gpu_runtime.scheduler.backlog import Request
from gpu_runtime.scheduler.batch_former import Batch, BatchFormer

ALPHA_US = 40_000  # fixed cost of a batch
BETA_US = 1_500  # cost of a token (one token = one sample here)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """A tenant that keeps ``outstanding`` requests in the system, in bursts of virtual time [from_us, until_us)."""

    tenant_id: str
    outstanding: int
    weight: int = 1
    group_keys: tuple[str, ...] = ("base",)
    tokens_max: int = 1
    private_us_max: int = 0
    think_us: int = 0  # pause between an answer and the next request
    bursts: tuple[tuple[int, int], ...] = ((0, 1 << 60),)

    def active(self, now_us: int) -> bool:
        return any(start_us <= now_us < end_us for start_us, end_us in self.bursts)


@dataclass
class World:
    """Single device. ``seed`` decides everything, so the same seed makes the same decisions."""

    crowd: tuple[Crowd, ...]
    seed: int = 0
    limit_tokens: int = 32
    window_us: int = ALPHA_US + 32 * BETA_US
    wait_us: int = 5_000
    make_former: Callable[..., BatchFormer[str]] = BatchFormer

    now_us: int = 0
    batches: int = 0
    charge_us_max: int = 0  # U: largest normalised charge of one tenant in one batch, rounded up
    served_us: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    waits_us: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    lags_us: dict[tuple[str, str], tuple[Fraction, Fraction]] = field(default_factory=dict)  # least, most

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.tenants = {tenant.tenant_id: tenant for tenant in self.crowd}
        self.former = self.make_former(
            batch_limit_tokens=self.limit_tokens, window_us=self.window_us, wait_us=self.wait_us
        )
        self.trace = hashlib.sha256()
        self.arrivals: list[tuple[int, int, str]] = []
        self.arrived_us: dict[str, int] = {}
        self._made = 0
        self._idle_from_us: int | None = None
        for tenant in self.crowd:
            self.former.set_weight(tenant.tenant_id, tenant.weight)
            for start_us, _ in tenant.bursts:
                for _ in range(tenant.outstanding):
                    self._arrive_at(start_us, tenant.tenant_id)

    def run(self, until_us: int) -> "World":
        while self.now_us < until_us and (self.arrivals or len(self.former.backlog)):
            self._admit()
            if not self._serve():
                self._idle()
        invariants.check_lag(self.lag_us_max(), window_us=self.window_us, charge_us_max=self.charge_us_max)
        return self

    def share(self, tenant_id: str) -> float:
        return self.served_us[tenant_id] / sum(self.served_us.values())

    def _serve(self) -> bool:
        before, virtual_us = invariants.Waiting.of(self.former), self.former.fair.virtual_us
        batch = self.former.take(now_us=self.now_us)
        if batch is None:
            return False
        invariants.check_decision(before, batch, self.former, window_us=self.window_us, limit_tokens=self.limit_tokens)
        invariants.check_virtual_time(virtual_us, self.former.fair.virtual_us)
        if self._idle_from_us is not None:
            idle_us, self._idle_from_us = self.now_us - self._idle_from_us, None
            invariants.check_idle(idle_us, wait_us=self.wait_us)
        self._run(batch)
        invariants.check_spread(self.former, window_us=self.window_us, charge_us_max=self.charge_us_max)
        self._measure_lags(set(before.tags))
        return True

    def _run(self, batch: Batch[str]) -> None:
        """The device runs the batch; requests that arrive meanwhile gather; then everyone pays what was measured."""
        requests = {pick.request.request_id: pick.request for pick in batch.picks}
        tokens = {request_id: request.tokens for request_id, request in requests.items()}
        shared_us = ALPHA_US + BETA_US * sum(tokens.values()) + self.random.randrange(1_000)
        private_us = {
            request_id: self.random.randrange(self.tenants[request.tenant_id].private_us_max + 1)
            for request_id, request in requests.items()
        }
        busy_us = shared_us + sum(private_us.values()) + self.random.randrange(500)
        step = MeasuredStep(busy_us=busy_us, shared_us=shared_us, private_us=private_us)
        attribution = attribute(step, tokens)
        invariants.check_accounting(step, attribution)
        self._trace(batch, attribution.shares)
        self._wait(batch)
        self._gather(self.now_us + busy_us)
        charged: defaultdict[str, int] = defaultdict(int)
        for request_id, request in requests.items():
            self.former.settle(request_id, charge_us=attribution.shares[request_id])
            charged[request.tenant_id] += attribution.shares[request_id]
            self._arrive_at(self.now_us + self.tenants[request.tenant_id].think_us, request.tenant_id)
        self.batches += 1
        for tenant_id, charge_us in charged.items():
            self.served_us[tenant_id] += charge_us
            self.charge_us_max = max(self.charge_us_max, -(-charge_us // self.tenants[tenant_id].weight))

    def _gather(self, until_us: int) -> None:
        while self.arrivals and self.arrivals[0][0] <= until_us:
            self.now_us = max(self.now_us, self.arrivals[0][0])
            self._admit()
        self.now_us = until_us

    def _admit(self) -> None:
        while self.arrivals and self.arrivals[0][0] <= self.now_us:
            arrived_us, made, tenant_id = heapq.heappop(self.arrivals)
            tenant = self.tenants[tenant_id]
            if tenant.active(self.now_us):
                self._offer(tenant, f"{tenant_id}#{made}", made, arrived_us)

    def _offer(self, tenant: Crowd, request_id: str, made: int, arrived_us: int) -> None:
        returns = not self.former.backlog.group_keys(tenant.tenant_id)
        self.arrived_us[request_id] = arrived_us
        request = Request(
            request_id=request_id,
            tenant_id=tenant.tenant_id,
            group_key=self.random.choice(tenant.group_keys),
            tokens=self.random.randint(1, tenant.tokens_max),
            order=(made,),
            fire_at_us=self.former.fire_at_us(self.now_us),
        )
        self.former.offer(request)
        if returns:
            invariants.check_entry(self.former, tenant.tenant_id)

    def _idle(self) -> None:
        """Nothing fires: sleep until something arrives or wants to fire."""
        fire_us = self.former.next_fire_us()
        if fire_us is not None and self._idle_from_us is None:
            self._idle_from_us = self.now_us
        times = [time for time in (fire_us, self.arrivals[0][0] if self.arrivals else None) if time is not None]
        self.now_us = max(self.now_us, min(times, default=self.now_us))

    def _arrive_at(self, time_us: int, tenant_id: str) -> None:
        self._made += 1
        heapq.heappush(self.arrivals, (time_us, self._made, tenant_id))

    def _wait(self, batch: Batch[str]) -> None:
        for pick in batch.picks:
            waited_us = self.now_us - self.arrived_us.pop(pick.request.request_id)
            self.waits_us[pick.request.tenant_id].append(waited_us)

    def _trace(self, batch: Batch[str], shares: dict[str, int]) -> None:
        self.trace.update(f"{self.now_us} {batch.group_key} {sorted(shares.items())}\n".encode())

    def _measure_lags(self, backlogged: set[str]) -> None:
        """Range of W_f/w_f - W_g/w_g for tenants that are backlogged at every decision since the first."""
        if self.batches == 1:
            self.always = set(backlogged)
        self.always &= backlogged
        for pair in combinations(sorted(self.always), 2):
            first, second = (Fraction(self.served_us[name], self.tenants[name].weight) for name in pair)
            least, most = self.lags_us.get(pair, (first - second, first - second))
            self.lags_us[pair] = (min(least, first - second), max(most, first - second))

    def lag_us_max(self) -> Fraction:
        """Largest |W_f/w_f - W_g/w_g| over any interval, for pairs that were backlogged throughout."""
        spans = [most - least for pair, (least, most) in self.lags_us.items() if set(pair) <= self.always]
        return max(spans, default=Fraction(0))
