"""A tenant's part of the device time measured while one of its jobs runs."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import BigIntegerField, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce

from jobs.models import DeviceSpan, Job
from jobs.selectors.kept import Kept, newest_span
from jobs.selectors.spans import ON_DEVICE
from tenants.models import Tenant


@dataclass(slots=True, kw_only=True)
class _Sum:
    """Measured microseconds up to a span: everybody's, and the tenant's own."""

    until: int = 0  # key of the newest span in it
    busy_us: int = 0
    own_us: int = 0


# A job that ends is summed anew: its end is in the key.
_SUMS: Kept[tuple[UUID, UUID, datetime, datetime | None], _Sum] = Kept(most=1024)


def compute_share(tenant: Tenant, job: Job) -> float | None:
    """This tenant's part (0 to 1) of the device time measured during the job's life; None before the first step.

    Device time is that of training and inference; simulators compute on their own processors. The sum runs over
    every tenant's spans, but only this tenant's shares leave the database. A process sums a job once; from then on it
    adds the spans that came since, late ones too.
    """
    if job.started_at is None:
        return None
    with _SUMS.value((tenant.pk, job.pk, job.started_at, job.finished_at), _Sum) as total:
        _add_new(total, tenant, job)
        return total.own_us / total.busy_us if total.busy_us else None


def _add_new(total: _Sum, tenant: Tenant, job: Job) -> None:
    newest = newest_span()
    if newest == total.until:
        return
    spans = DeviceSpan.objects.filter(service__in=ON_DEVICE, started_at__gte=job.started_at)
    spans = spans.filter(pk__gt=total.until, pk__lte=newest)
    if job.finished_at is not None:
        spans = spans.filter(started_at__lte=job.finished_at)
    own = Cast(KT(f"shares__{tenant.pk}"), BigIntegerField())
    found = spans.aggregate(own=Coalesce(Sum(own), 0), busy=Coalesce(Sum("busy_us"), 0))
    total.own_us += found["own"]
    total.busy_us += found["busy"]
    total.until = newest
