"""Reservations of bytes on their way, as rows: whoever is killed in mid transfer leaves no reservation for ever."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from tenants.models import Tenant
from tenants.quotas.models import StorageLease
from tenants.quotas.storage import account_for_update, storage_commit, storage_release, storage_reserve
from tenants.scope import platform_scope, tenant_scope

LEASE_TTL = timedelta(minutes=10)  # renewed every minute while bytes come


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A reservation by name. Its row is there while it holds something."""

    tenant: Tenant
    id: UUID


@transaction.atomic
def lease_hold(lease: Lease, size_bytes: int, *, lasts: timedelta | None = LEASE_TTL) -> None:
    """Make it hold at least ``size_bytes`` and live on; ``lasts`` None: until it is released.

    Raises ApplicationError 409 where the storage limit leaves less; what it held before it keeps.
    """
    held = _held(lease)
    if size_bytes > held:
        storage_reserve(lease.tenant, size_bytes - held)
    fields = {
        "tenant": lease.tenant,
        "reserved_bytes": max(held, size_bytes),
        "expires_at": timezone.now() + lasts if lasts else None,
    }
    with tenant_scope(lease.tenant):
        StorageLease.objects.update_or_create(pk=lease.id, defaults=fields)


@transaction.atomic
def lease_settle(lease: Lease, *, used: int) -> None:
    """The bytes are here and take ``used``. Raises ApplicationError 409 if it held less and the rest does not fit."""
    lease_hold(lease, used)
    storage_commit(lease.tenant, reserved=_held(lease), used=used)
    _forget(lease)


@transaction.atomic
def lease_release(lease: Lease) -> None:
    """Give back what it holds; again is harmless."""
    held = _held(lease)
    if held:
        storage_release(lease.tenant, reserved=held)
    _forget(lease)


def leases_sweep() -> int:
    """Release what killed processes left behind. Returns how many."""
    with platform_scope():
        expired = list(StorageLease.objects.filter(expires_at__lt=timezone.now()).select_related("tenant"))
    return sum(_expire(Lease(tenant=row.tenant, id=row.pk)) for row in expired)


@transaction.atomic
def _expire(lease: Lease) -> bool:
    """False if it was renewed or settled meanwhile."""
    account_for_update(lease.tenant)
    with tenant_scope(lease.tenant):
        late = StorageLease.objects.filter(pk=lease.id, expires_at__lt=timezone.now()).exists()
    if late:
        lease_release(lease)
    return late


def _held(lease: Lease) -> int:
    """Bytes it holds; the account is locked first, so nobody else changes them."""
    account_for_update(lease.tenant)
    with tenant_scope(lease.tenant):
        held = StorageLease.objects.filter(pk=lease.id).values_list("reserved_bytes", flat=True).first()
    return held or 0


def _forget(lease: Lease) -> None:
    with tenant_scope(lease.tenant):
        StorageLease.objects.filter(pk=lease.id).delete()
