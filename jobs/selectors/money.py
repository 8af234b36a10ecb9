"""The money check: what was measured on the device is what was metered, to the microsecond. For operators."""

from collections import Counter
from dataclasses import dataclass

from jobs.models import DeviceSpan
from tenants.billing.selectors import metered_compute_us


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingCheck:
    """``difference_us``: per tenant, metered minus measured; only tenants with a difference."""

    spans: int
    busy_us: int
    overhead_us: int
    attributed_us: int
    unbalanced_spans: tuple[str, ...]  # shares + overhead != busy
    difference_us: dict[str, int]

    @property
    def ok(self) -> bool:
        return not self.unbalanced_spans and not self.difference_us


def reconcile_billing() -> BillingCheck:
    """Recompute every tenant's time from the spans and compare it with the books. Everything must be zero."""
    measured: Counter[str] = Counter()
    spans = busy_us = overhead_us = 0
    unbalanced: list[str] = []
    for span in DeviceSpan.objects.order_by("pk").iterator():
        spans, busy_us, overhead_us = spans + 1, busy_us + span.busy_us, overhead_us + span.overhead_us
        measured.update(span.shares)
        if sum(span.shares.values()) + span.overhead_us != span.busy_us:
            unbalanced.append(f"{span.journal_id}/{span.span_id}")
    metered = Counter(metered_compute_us())
    tenants = sorted(measured.keys() | metered.keys())
    return BillingCheck(
        spans=spans,
        busy_us=busy_us,
        overhead_us=overhead_us,
        attributed_us=measured.total(),
        unbalanced_spans=tuple(unbalanced),
        difference_us={key: metered[key] - measured[key] for key in tenants if metered[key] != measured[key]},
    )
