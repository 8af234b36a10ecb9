"""Fairness: the device time a tenant was given against its part by weight, while it was served at all.

In each bucket of 15 s in which a service gave the tenant time, its fair part is: all tenants' time in that bucket
times its weight over the sum of the weights of those served in it. ``received`` and ``fair`` add these up over the
last half hour. So over all tenants the differences add up to zero, and a tenant alone gets exactly its fair part.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils import timezone

from jobs.selectors.spans import counted, window_of
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """One service, in microseconds. ``shared_buckets`` of ``buckets`` were shared with somebody."""

    received_us: int
    fair_us: float
    buckets: int
    shared_buckets: int

    @property
    def ahead_s(self) -> float:
        """Seconds ahead of the fair part; negative: behind."""
        return (self.received_us - self.fair_us) / 1e6

    @property
    def ratio(self) -> float | None:
        """Received over fair; None where nothing was received."""
        return self.received_us / self.fair_us if self.fair_us else None


def fairness_of(shares_us: Mapping[int, Mapping[str, int]], weights: Mapping[str, int], own: str) -> Fairness:
    """Pure: bucket -> tenant id -> time, and everybody's weight (1 where nobody set one)."""
    received = buckets = shared = 0
    fair = 0.0
    for parts in shares_us.values():
        served = {tenant: us for tenant, us in parts.items() if us > 0}
        if own not in served:
            continue
        buckets += 1
        shared += len(served) > 1
        received += served[own]
        weight = sum(weights.get(tenant, 1) for tenant in served)
        fair += sum(served.values()) * weights.get(own, 1) / weight
    return Fairness(received_us=received, fair_us=fair, buckets=buckets, shared_buckets=shared)


def fairness(tenant: Tenant, service: str) -> Fairness:
    """The tenant's own, of the last half hour. Nothing of any other leaves this function."""
    window = window_of(timezone.now())
    with counted(service, window) as known:
        shares = {bucket: dict(parts) for bucket, parts in known.shares_us.items() if bucket in window.buckets}
    served = {key for parts in shares.values() for key in parts}
    weights = {str(pk): weight for pk, weight in Tenant.objects.filter(pk__in=served).values_list("pk", "weight")}
    return fairness_of(shares, weights, str(tenant.pk))
