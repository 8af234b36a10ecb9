"""How long a tenant's own jobs waited until they started."""

from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from jobs.models import Job
from tenants.models import Tenant
from tenants.scope import tenant_scope

WINDOW = timedelta(days=7)
_MOST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """From being submitted to starting, in seconds, of ``jobs`` submitted within the window; None without any."""

    jobs: int
    p50_s: float | None
    p95_s: float | None

    @property
    def is_cut(self) -> bool:
        """Whether there may be more than were looked at."""
        return self.jobs >= _MOST


def own_waits(tenant: Tenant) -> Waits:
    """Of those that have started, submitted in the last seven days; the newest 500 at most."""
    with tenant_scope(tenant):
        rows = Job.objects.filter(created_at__gte=timezone.now() - WINDOW, started_at__isnull=False)
        moments = list(rows.order_by("-created_at").values_list("created_at", "started_at")[:_MOST])
    waits = sorted(max(0.0, (started - created).total_seconds()) for created, started in moments if started)
    return Waits(jobs=len(waits), p50_s=_quantile(waits, 0.5), p95_s=_quantile(waits, 0.95))


def _quantile(ordered: list[float], part: float) -> float | None:
    """The smallest that at least this part of all does not exceed."""
    return ordered[max(0, -(-int(part * 1000) * len(ordered) // 1000) - 1)] if ordered else None
