"""One device's batch former under arrivals, departures, measured costs, weight changes and restarts."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpu_runtime.scheduler import invariants
from gpu_runtime.scheduler.backlog import Request
from gpu_runtime.scheduler.batch_former import BatchFormer

LIMIT_TOKENS, WINDOW_US, WAIT_US = 20, 500, 7

tenants = st.sampled_from("abcd")


class FairShareMachine(RuleBasedStateMachine):
    @initialize(arrivals=st.lists(st.tuples(tenants, st.sampled_from("xy"), st.integers(1, 25)), max_size=30))
    def open_with_a_crowd(self, arrivals):
        self.former = self.make_former()
        self.now_us, self.made, self.charge_us_max = 0, 0, 0
        for tenant_id, group_key, tokens in arrivals:
            self.offer(tenant_id, group_key, tokens, 0)

    def make_former(self) -> BatchFormer[str]:
        return BatchFormer(batch_limit_tokens=LIMIT_TOKENS, window_us=WINDOW_US, wait_us=WAIT_US)

    def offer(self, tenant_id: str, group_key: str, tokens: int, priority: int) -> None:
        self.made += 1
        returns = not self.former.backlog.group_keys(tenant_id)
        request = Request(
            request_id=f"{tenant_id}{self.made}",
            tenant_id=tenant_id,
            group_key=group_key,
            tokens=tokens,
            order=(priority, self.made),
            fire_at_us=self.former.fire_at_us(self.now_us),
        )
        self.former.offer(request)
        if returns:
            invariants.check_entry(self.former, tenant_id)

    @rule(
        tenant_id=tenants,
        group_key=st.sampled_from("xy"),
        tokens=st.integers(1, 25),
        priority=st.integers(0, 2),
        count=st.integers(1, 12),
    )
    def arrive(self, tenant_id, group_key, tokens, priority, count):
        for _ in range(count):
            self.offer(tenant_id, group_key, tokens, priority)

    @rule(tenant_id=tenants)
    def leave(self, tenant_id):
        for request in [request for request in self.former.backlog if request.tenant_id == tenant_id]:
            self.former.discard(request.request_id)

    @precondition(lambda self: len(self.former.backlog))
    @rule(at=st.integers(0, 1_000))
    def withdraw_one(self, at):
        waiting = sorted(request.request_id for request in self.former.backlog)
        self.former.discard(waiting[at % len(waiting)])

    @precondition(lambda self: len(self.former.backlog))
    @rule(charges=st.lists(st.integers(0, 3_000) | st.none(), min_size=1, max_size=10), repeat=st.integers(1, 5))
    def run_batches(self, charges, repeat):
        """Each request is charged what it cost, or comes back unserved (None)."""
        for _ in range(repeat):
            if len(self.former.backlog):
                self.run_batch(charges)

    def run_batch(self, charges: list[int | None]) -> None:
        before, virtual_us = invariants.Waiting.of(self.former), self.former.fair.virtual_us
        batch = self.former.take(now_us=self.now_us)
        if batch is None:
            self.now_us += WAIT_US
            batch = self.former.take(now_us=self.now_us)
        assert batch is not None, "the device idles longer than T with a backlog"
        invariants.check_decision(before, batch, self.former, window_us=WINDOW_US, limit_tokens=LIMIT_TOKENS)
        invariants.check_virtual_time(virtual_us, self.former.fair.virtual_us)
        charged: dict[str, int] = {}
        for at, pick in enumerate(batch.picks):
            charge_us, tenant_id = charges[at % len(charges)], pick.request.tenant_id
            if charge_us is None:
                self.former.discard(pick.request.request_id)
                continue
            self.former.settle(pick.request.request_id, charge_us=charge_us)
            charged[tenant_id] = charged.get(tenant_id, 0) + charge_us
        for tenant_id, charge_us in charged.items():
            weight = self.former.fair.weight(tenant_id)
            self.charge_us_max = max(self.charge_us_max, -(-charge_us // weight))

    @rule(tenant_id=tenants, weight=st.integers(1, 5))
    def set_weight(self, tenant_id, weight):
        counter_us = self.former.fair.counter_us(tenant_id)
        self.former.set_weight(tenant_id, weight)
        assert self.former.fair.counter_us(tenant_id) == counter_us

    @rule()
    def restart(self):
        state, waiting = self.former.dump(), list(self.former.backlog)
        counters = {tenant_id: self.former.fair.counter_us(tenant_id) for tenant_id in "abcd"}
        self.former = self.make_former()
        self.former.restore(state)
        for request in waiting:
            self.former.offer(request)
        assert counters == {tenant_id: self.former.fair.counter_us(tenant_id) for tenant_id in "abcd"}

    @invariant()
    def counters_stay_together(self):
        if hasattr(self, "former"):
            invariants.check_spread(self.former, window_us=WINDOW_US, charge_us_max=self.charge_us_max)


TestFairShare = FairShareMachine.TestCase
TestFairShare.settings = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True)
