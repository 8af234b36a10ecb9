"""How much of each limit a tenant has used now, for the tenant's screen."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.templatetags.operator import byte_size
from tenants.models import Tenant
from tenants.quotas.limits import limits_read
from tenants.quotas.models import Resource
from tenants.quotas.usage import used_of

NEAR = 0.8
_NAMES = {
    Resource.ENV_SEATS: "simulated environments",
    Resource.STORAGE_BYTES: "storage",
    Resource.COMPUTE_S_PER_JOB: "compute time per job",
    Resource.COMPUTE_S_PER_MONTH: "compute time per month",
}
_UNITS = {
    Resource.STORAGE_BYTES: "bytes",
    Resource.COMPUTE_S_PER_JOB: "seconds",
    Resource.COMPUTE_S_PER_MONTH: "seconds",
    Resource.MONEY_PER_MONTH: "whole money",
}


def resource_name(resource: Resource) -> str:
    """As people call it."""
    return _NAMES.get(resource, resource.replace("_", " "))


def resource_choices() -> list[tuple[str, str]]:
    """For a form in which one is picked: its name with the unit of its limit, where it is not a count."""
    units = {name: f" ({_UNITS[name]})" if name in _UNITS else "" for name in Resource}
    return [(name.value, f"{resource_name(name)}{units[name]}") for name in Resource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One limit in its unit. ``used`` None: it is counted per job or per minute, not held; ``limit`` None: none."""

    resource: Resource
    used: int | None
    limit: int | None
    expires_at: datetime | None
    own: bool  # set for this tenant; else the platform's default
    currency: str

    @property
    def name(self) -> str:
        return resource_name(self.resource).capitalize()

    @property
    def share(self) -> float | None:
        """Of the limit, 0 to 1; None where there is none."""
        if self.used is None or self.limit is None:
            return None
        return min(1.0, self.used / self.limit) if self.limit else float(self.used > 0)

    @property
    def tone(self) -> str:
        """``bad``: used up, ``warn``: nearly."""
        share = self.share or 0.0
        return "bad" if share >= 1 else "warn" if share >= NEAR else ""

    @property
    def words(self) -> str:
        limit = "no limit" if self.limit is None else self._figure(self.limit)
        between = ", " if self.limit is None else " of "
        return limit if self.used is None else f"{self._figure(self.used)}{between}{limit}"

    def _figure(self, value: int) -> str:
        if self.resource is Resource.STORAGE_BYTES:
            return byte_size(value)
        if self.resource is Resource.MONEY_PER_MONTH:
            return f"{value:,} {self.currency}"
        return f"{value:,} s" if self.resource.startswith("compute_s") else f"{value:,}"


def quota_bars(tenant: Tenant) -> list[Bar]:
    """Every resource, in the order in which they are declared."""
    limits, used = limits_read(tenant), used_of(tenant)[None]
    bars = []
    for resource in Resource:
        row = limits.own.get((None, resource))
        bars.append(
            Bar(
                resource=resource,
                used=used.get(resource),
                limit=limits.of_tenant(resource),
                expires_at=row.expires_at if row else None,
                own=row is not None,
                currency=tenant.currency,
            )
        )
    return bars
