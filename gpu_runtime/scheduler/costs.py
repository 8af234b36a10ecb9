"""What a request will probably cost, learned from what the tenant's last ones did cost."""

from gpu_runtime.protocol.ids import TenantId

TOKENS_PER_RATE = 1024
SMOOTHING = 8  # a new measurement moves the rate by 1/8 of the difference
FIRST_RATE = TOKENS_PER_RATE  # 1 us per token, until something was measured


class CostModel:
    """Smoothed microseconds per 1024 tokens, by tenant, in integers.

    Estimates only order the picks within one batch; every charge is a measurement. A new tenant is
    estimated at the rate of all tenants together.
    """

    def __init__(self, *, rates: dict[TenantId, int] | None = None, overall: int = FIRST_RATE) -> None:
        self._rates = dict(rates or {})
        self._overall = overall

    def estimate_us(self, tenant_id: TenantId, tokens: int) -> int:
        """At least 1 us, so that every pick moves a tentative counter."""
        return max(1, self._rates.get(tenant_id, self._overall) * tokens // TOKENS_PER_RATE)

    def observe(self, tenant_id: TenantId, tokens: int, charge_us: int) -> None:
        """Learn from one measured charge."""
        measured = charge_us * TOKENS_PER_RATE // tokens
        rate = self._rates.get(tenant_id, measured)
        self._rates[tenant_id] = rate + (measured - rate) // SMOOTHING
        self._overall += (measured - self._overall) // SMOOTHING

    def dump(self) -> dict[str, object]:
        return {"rates": dict(self._rates), "overall": self._overall}
