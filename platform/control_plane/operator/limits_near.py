"""Which tenants have used up, or nearly, what they are refused beyond: of all of them, in a fixed number of reads."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet, Sum
from django.utils import timezone

from control_plane.operator.quota_bars import resource_name
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
        name = resource_name(self.resource)
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
        for tenant_id, used in read(limits.tenants(resource)).items()
        if (limit := limits.of(tenant_id, resource)) is not None and used >= NEAR * limit and used > 0
    ]
    found.sort(key=lambda row: (row[3] - row[2]) / max(row[3], Decimal(1)))
    tenants = Tenant.objects.in_bulk({row[0] for row in found[:MOST_SHOWN]})
    return [
        Near(tenant=tenants[tenant_id], resource=resource, used=used, limit=limit)
        for tenant_id, resource, used, limit in found[:MOST_SHOWN]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Those in force: the tenants' own, and the platform's of everybody else."""

    own: Mapping[tuple[UUID, str], int]
    defaults: Mapping[str, int]

    def of(self, tenant_id: UUID, resource: Resource) -> Decimal | None:
        value = self.own.get((tenant_id, resource), self.defaults.get(resource))
        return None if value is None else Decimal(value)

    def tenants(self, resource: Resource) -> set[UUID] | None:
        """Who can be near a limit at all; None: everybody. A month of everybody's usage is much to add up."""
        return None if resource in self.defaults else {tenant_id for tenant_id, name in self.own if name == resource}


def _limits() -> _Limits:
    in_force = Quota.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), ended_at=None, project=None)
    own: dict[tuple[UUID, str], int] = {}
    for row in in_force.filter(resource__in=list(USED)).order_by("-created_at", "-pk"):
        own.setdefault((row.tenant_id, row.resource), row.limit)
    return _Limits(own=own, defaults=dict(DefaultQuota.objects.values_list("resource", "limit")))


def _queued(tenants: Collection[UUID] | None) -> Figures:
    rows = Job.objects.filter(state=JobState.QUEUED).values("tenant_id").annotate(used=Count("pk"))
    return {row["tenant_id"]: Decimal(row["used"]) for row in rows.order_by("tenant_id")}


def _stored(tenants: Collection[UUID] | None) -> Figures:
    rows = StorageAccount.objects.annotate(used=F("used_bytes") + F("reserved_bytes"))
    return {row.tenant_id: Decimal(row.used) for row in rows}


def _spent(tenants: Collection[UUID] | None) -> Figures:
    rows = _month(tenants).values("tenant_id").annotate(used=Sum("amount")).order_by("tenant_id")
    return {row["tenant_id"]: Decimal(row["used"]) for row in rows}


def _computed(tenants: Collection[UUID] | None) -> Figures:
    rows = _month(tenants).filter(meter__in=COMPUTE_METERS).values("tenant_id").annotate(used=Sum("quantity"))
    return {row["tenant_id"]: Decimal(row["used"]) / _US_PER_S for row in rows.order_by("tenant_id")}


def _month(tenants: Collection[UUID] | None) -> QuerySet[UsageRollup]:
    first = month_of(timezone.now())
    rows = UsageRollup.objects.filter(day__gte=first, day__lt=month_after(first))
    return rows if tenants is None else rows.filter(tenant__in=tenants)


USED: dict[Resource, Callable[[Collection[UUID] | None], Figures]] = {
    Resource.QUEUED_JOBS: _queued,
    Resource.STORAGE_BYTES: _stored,
    Resource.MONEY_PER_MONTH: _spent,
    Resource.COMPUTE_S_PER_MONTH: _computed,
}
