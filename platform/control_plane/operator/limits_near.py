"""Which tenants have used up, or nearly, what they are refused beyond: of all of them, in a fixed number of reads."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet, Sum
from django.utils import timezone

from control_plane.templatetags.operator import amount, byte_size
from jobs.models import Job
from jobs.states import JobState
from tenants.billing.models import COMPUTE_METERS, UsageRollup
from tenants.billing.usage.periods import month_after, month_of
from tenants.models import Tenant
from tenants.quotas.models import DefaultQuota, Quota, Resource, StorageAccount

NEAR = Decimal("0.8")  # of the limit
MOST_SHOWN = 20
_US_PER_S = 1_000_000

Figures = dict[UUID, Decimal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A tenant close to a limit, or beyond it. Both figures are in the resource's unit."""

    tenant: Tenant
    resource: Resource
    used: Decimal
    limit: Decimal

    @property
    def words(self) -> str:
        name = self.resource.replace("_", " ")
        if self.resource is Resource.STORAGE_BYTES:
            return f"storage {byte_size(int(self.used))} of {byte_size(int(self.limit))}"
        if self.resource is Resource.MONEY_PER_MONTH:
            return f"{amount(self.used)} of {amount(self.limit, self.tenant.currency)} this month"
        return f"{name} {self.used.quantize(Decimal(1)):,} of {self.limit:,}"


def tenants_near_limits() -> list[Near]:
    """Those at 80 % and more of a limit that refuses or stops work, fullest first."""
    limits = _limits()
    found = [
        (tenant_id, resource, used, limit)
        for resource, read in USED.items()
        for tenant_id, used in read().items()
        if (limit := limits(tenant_id, resource)) is not None and used >= NEAR * limit and used > 0
    ]
    found.sort(key=lambda row: (row[3] - row[2]) / max(row[3], Decimal(1)))
    tenants = Tenant.objects.in_bulk({row[0] for row in found[:MOST_SHOWN]})
    return [
        Near(tenant=tenants[tenant_id], resource=resource, used=used, limit=limit)
        for tenant_id, resource, used, limit in found[:MOST_SHOWN]
    ]


def _limits() -> Callable[[UUID, Resource], Decimal | None]:
    in_force = Quota.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), ended_at=None, project=None)
    own: dict[tuple[UUID, str], int] = {}
    for row in in_force.filter(resource__in=list(USED)).order_by("-created_at", "-pk"):
        own.setdefault((row.tenant_id, row.resource), row.limit)
    defaults = dict(DefaultQuota.objects.values_list("resource", "limit"))

    def limit(tenant_id: UUID, resource: Resource) -> Decimal | None:
        value = own.get((tenant_id, resource), defaults.get(resource))
        return None if value is None else Decimal(value)

    return limit


def _queued() -> Figures:
    rows = Job.objects.filter(state=JobState.QUEUED).values("tenant_id").annotate(used=Count("pk"))
    return {row["tenant_id"]: Decimal(row["used"]) for row in rows.order_by("tenant_id")}


def _stored() -> Figures:
    rows = StorageAccount.objects.annotate(used=F("used_bytes") + F("reserved_bytes"))
    return {row.tenant_id: Decimal(row.used) for row in rows}


def _spent() -> Figures:
    rows = _month().values("tenant_id").annotate(used=Sum("amount")).order_by("tenant_id")
    return {row["tenant_id"]: Decimal(row["used"]) for row in rows}


def _computed() -> Figures:
    rows = _month().filter(meter__in=COMPUTE_METERS).values("tenant_id").annotate(used=Sum("quantity"))
    return {row["tenant_id"]: Decimal(row["used"]) / _US_PER_S for row in rows.order_by("tenant_id")}


def _month() -> QuerySet[UsageRollup]:
    first = month_of(timezone.now())
    return UsageRollup.objects.filter(day__gte=first, day__lt=month_after(first))


USED: dict[Resource, Callable[[], Figures]] = {
    Resource.QUEUED_JOBS: _queued,
    Resource.STORAGE_BYTES: _stored,
    Resource.MONEY_PER_MONTH: _spent,
    Resource.COMPUTE_S_PER_MONTH: _computed,
}
