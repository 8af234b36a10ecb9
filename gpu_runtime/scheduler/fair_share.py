"""Start-time fair queueing on measured compute time over weight."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from gpu_runtime.protocol.ids import TenantId
from gpu_runtime.scheduler.errors import require


class Tag(NamedTuple):
    """Sort key among tenants: least served first, then served longest ago, then by name."""

    counter_us: int
    served_seq: int
    tenant_id: TenantId


@dataclass(slots=True, kw_only=True)
class _Account:
    weight: int = 1
    counter_us: int = 0  # S: measured service over weight
    carry: int = 0  # numerator of the fraction of S below 1 us, over weight
    held_us: int = 0  # estimates of what is leased and not yet measured
    served_seq: int = 0

    @property
    def tentative_us(self) -> int:
        """S if everything leased cost what was estimated; equal to S when nothing is leased."""
        return self.counter_us + -(-self.held_us // self.weight)


class FairShare:
    """The counters S of all tenants and the virtual time V, in integer microseconds.

    V is the counter of the last leader. It never falls: charges only raise a counter, and who comes back
    from idle enters at V or above. All methods are O(1).
    """

    def __init__(self) -> None:
        self._accounts: dict[TenantId, _Account] = {}
        self._virtual_us = 0
        self._served_seq = 0

    @property
    def virtual_us(self) -> int:
        return self._virtual_us

    def tag(self, tenant_id: TenantId) -> Tag:
        account = self._account(tenant_id)
        return Tag(account.tentative_us, account.served_seq, tenant_id)

    def counter_us(self, tenant_id: TenantId) -> int:
        return self._account(tenant_id).counter_us

    def weight(self, tenant_id: TenantId) -> int:
        return self._account(tenant_id).weight

    def set_weight(self, tenant_id: TenantId, weight: int) -> None:
        """The carried fraction keeps its value, rounded down to the new weight's unit."""
        require(weight >= 1, "weight", weight, "1 or more")
        account = self._account(tenant_id)
        account.carry = account.carry * weight // account.weight
        account.weight = weight

    def enter(self, tenant_id: TenantId) -> None:
        """Lift a tenant that comes back from idle: S = max(S, V). Credit is not banked, debt is kept."""
        account = self._account(tenant_id)
        missing_us = self._virtual_us - account.tentative_us
        if missing_us > 0:
            account.counter_us += missing_us
            account.carry = 0

    def lead(self, tenant_id: TenantId) -> int:
        """Make this tenant the leader of a batch; returns its tentative counter, the start of the window."""
        start_us = self._account(tenant_id).tentative_us
        self._virtual_us = max(self._virtual_us, start_us)
        return start_us

    def hold(self, tenant_id: TenantId, estimate_us: int) -> None:
        """Count a picked request at its estimate until it is measured."""
        account = self._account(tenant_id)
        account.held_us += estimate_us
        self._served_seq += 1
        account.served_seq = self._served_seq

    def unhold(self, tenant_id: TenantId, estimate_us: int) -> None:
        """Take an estimate back: the request was measured, or will run later."""
        account = self._account(tenant_id)
        account.held_us -= estimate_us
        assert account.held_us >= 0, "more taken back than was held"

    def charge(self, tenant_id: TenantId, charge_us: int) -> None:
        """Add measured time over weight. The remainder is carried, so S is exact for ever."""
        require(charge_us >= 0, "charge_us", charge_us, "zero or more")
        account = self._account(tenant_id)
        whole_us, account.carry = divmod(account.carry + charge_us, account.weight)
        account.counter_us += whole_us

    def dump(self) -> dict[str, Any]:
        """JSON-able; what is held is left out, because leases do not outlive a crash."""
        accounts = {tenant_id: asdict(account) | {"held_us": 0} for tenant_id, account in self._accounts.items()}
        return {"accounts": accounts, "virtual_us": self._virtual_us, "served_seq": self._served_seq}

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        fair = cls()
        fair._accounts = {TenantId(key): _Account(**value) for key, value in state["accounts"].items()}
        fair._virtual_us = state["virtual_us"]
        fair._served_seq = state["served_seq"]
        return fair

    def _account(self, tenant_id: TenantId) -> _Account:
        account = self._accounts.get(tenant_id)
        if account is None:
            account = self._accounts[tenant_id] = _Account()
        return account
