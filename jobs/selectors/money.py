"""The money check: what was measured of each service is what was metered, to the microsecond. For operators."""

from collections import Counter
from dataclasses import dataclass

from jobs.models import DeviceSpan
from jobs.selectors.utilization import ENVIRONMENT, INFERENCE, TRAINING
from tenants.billing.models import Meter
from tenants.billing.usage.selectors import metered_us

METER_OF_SERVICE = {
    TRAINING: Meter.TRAIN_COMPUTE_US,
    INFERENCE: Meter.PREDICT_COMPUTE_US,
    ENVIRONMENT: Meter.ENV_COMPUTE_US,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingCheck:
    """``service_difference_us``: service -> tenant -> metered minus measured; only where there is a difference.

    ``difference_us`` is the sum over services, where that is not zero: errors of two services may cancel there.
    """

    spans: int
    busy_us: int
    overhead_us: int
    attributed_us: int
    unbalanced_spans: tuple[str, ...]  # shares + overhead != busy
    service_difference_us: dict[str, dict[str, int]]

    @property
    def difference_us(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for of_tenant in self.service_difference_us.values():
            for tenant_id, difference_us in of_tenant.items():
                total[tenant_id] += difference_us
        return {tenant_id: total[tenant_id] for tenant_id in sorted(total) if total[tenant_id]}

    @property
    def ok(self) -> bool:
        return not self.unbalanced_spans and not self.service_difference_us


def reconcile_billing() -> BillingCheck:
    """Recompute every tenant's time from the spans and compare it with the books. Everything must be zero."""
    measured: dict[str, Counter[str]] = {service: Counter() for service in METER_OF_SERVICE}
    spans = busy_us = overhead_us = 0
    unbalanced: list[str] = []
    for span in DeviceSpan.objects.order_by("pk").iterator():
        spans, busy_us, overhead_us = spans + 1, busy_us + span.busy_us, overhead_us + span.overhead_us
        measured.setdefault(span.service, Counter()).update(span.shares)
        if sum(span.shares.values()) + span.overhead_us != span.busy_us:
            unbalanced.append(f"{span.journal_id}/{span.span_id}")
    differences = {service: _difference(service, shares) for service, shares in measured.items()}
    return BillingCheck(
        spans=spans,
        busy_us=busy_us,
        overhead_us=overhead_us,
        attributed_us=sum(shares.total() for shares in measured.values()),
        unbalanced_spans=tuple(unbalanced),
        service_difference_us={service: found for service, found in differences.items() if found},
    )


def _difference(service: str, measured: Counter[str]) -> dict[str, int]:
    """Tenant -> metered minus measured. A service we do not know has no meter: all of its time is a difference."""
    meter = METER_OF_SERVICE.get(service)
    metered = Counter(metered_us(meter) if meter else {})
    tenants = sorted(measured.keys() | metered.keys())
    return {key: metered[key] - measured[key] for key in tenants if metered[key] != measured[key]}
