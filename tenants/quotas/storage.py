"""What a tenant stores: reserved before the first byte arrives, counted while it is held, given back when it goes.

Every function locks the tenant's one account row (after Tenant and Job rows, before those of billing) and must
come last of the locks its transaction takes before those. Sizes are bytes.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import F, Sum
from django.utils import timezone

from tenants.errors import ApplicationError
from tenants.models import Tenant
from tenants.quotas.limits import limit_of
from tenants.quotas.models import Resource, StorageAccount, StorageHour, StorageLease
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes of one tenant, held and reserved."""

    used_bytes: int = 0
    reserved_bytes: int = 0

    def __add__(self, other: "Stored") -> "Stored":
        return Stored(
            used_bytes=self.used_bytes + other.used_bytes, reserved_bytes=self.reserved_bytes + other.reserved_bytes
        )


@transaction.atomic
def storage_reserve(tenant: Tenant, size_bytes: int) -> None:
    """Set ``size_bytes`` aside for bytes on their way. Raises ApplicationError 409 where the limit leaves less."""
    account = account_for_update(tenant)
    limit = limit_of(tenant, Resource.STORAGE_BYTES)
    held = account.used_bytes + account.reserved_bytes
    if limit is not None and held + size_bytes > limit:
        raise _no_room(size_bytes, account, limit)
    _change(account, reserved=size_bytes)


@transaction.atomic
def storage_commit(tenant: Tenant, *, reserved: int, used: int) -> None:
    """What was ``reserved`` has arrived and takes ``used``: more than reserved is counted, never refused."""
    _change(account_for_update(tenant), reserved=-reserved, used=used)


@transaction.atomic
def storage_release(tenant: Tenant, *, reserved: int = 0, used: int = 0) -> None:
    """Give bytes back: of an upload that came to nothing, of what was deleted."""
    _change(account_for_update(tenant), reserved=-reserved, used=-used)


def storage_add(tenant: Tenant, size_bytes: int) -> None:
    """Count what is there already, as artifacts and unpacked archives are. Never refused; negative: it shrank."""
    storage_commit(tenant, reserved=0, used=size_bytes)


def storage_of(tenant: Tenant) -> Stored:
    """What the account says now."""
    with tenant_scope(tenant):
        account = StorageAccount.objects.filter(tenant=tenant).first()
    if account is None:
        return Stored()
    return Stored(used_bytes=account.used_bytes, reserved_bytes=account.reserved_bytes)


_expected: list[Callable[[Tenant], Stored]] = []


def storage_counts(counts: Callable[[Tenant], Stored]) -> None:
    """Name a source of stored bytes: what its rows say a tenant holds. Apps do so once, when they are ready."""
    if counts not in _expected:
        _expected.append(counts)


def storage_expected(tenant: Tenant) -> Stored:
    """What every row of the tenant adds up to: equal to `storage_of`, unless bytes were lost from the account."""
    total = _leased(tenant)
    for counts in _expected:
        total += counts(tenant)
    return total


def account_for_update(tenant: Tenant) -> StorageAccount:
    """The locked account, with its hours counted up to now. The caller is in a transaction."""
    now = timezone.now().replace(microsecond=0)
    with tenant_scope(tenant):
        StorageAccount.objects.get_or_create(tenant=tenant, defaults={"accrued_at": now})
        account = StorageAccount.objects.select_for_update(no_key=True).get(tenant=tenant)
        _accrue(account, timezone.now().replace(microsecond=0))
    return account


def hour_of(moment: datetime) -> datetime:
    """The beginning of its UTC hour."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _accrue(account: StorageAccount, now: datetime) -> None:
    """Count ``used_bytes`` for every second since the last time, each into its own hour."""
    if now <= account.accrued_at:  # within the same second, or a clock that was set back
        return
    begin, account.accrued_at = account.accrued_at, now
    account.save(update_fields=["accrued_at"])
    if account.used_bytes == 0:
        return
    fresh: list[StorageHour] = []
    while begin < now:
        end = min(now, hour_of(begin) + HOUR)
        byte_s = account.used_bytes * int((end - begin).total_seconds())
        hours = StorageHour.objects.filter(tenant_id=account.tenant_id, hour=hour_of(begin))
        if fresh or not hours.update(byte_s=F("byte_s") + byte_s):  # only the first can be there already
            fresh.append(StorageHour(tenant_id=account.tenant_id, hour=hour_of(begin), byte_s=byte_s))
        begin = end
    StorageHour.objects.bulk_create(fresh, batch_size=500)


def _change(account: StorageAccount, *, reserved: int = 0, used: int = 0) -> None:
    """Never below zero: that would be bytes given back twice. It is logged, and reconciliation tells of it."""
    reserved_bytes, used_bytes = account.reserved_bytes + reserved, account.used_bytes + used
    if reserved_bytes < 0 or used_bytes < 0:
        logger.error(
            "storage of tenant %s would fall below zero: %d used, %d reserved", account.tenant_id, used_bytes,
            reserved_bytes,
        )  # fmt: skip
    account.reserved_bytes, account.used_bytes = max(0, reserved_bytes), max(0, used_bytes)
    with tenant_scope(account.tenant):
        account.save(update_fields=["reserved_bytes", "used_bytes"])


def _leased(tenant: Tenant) -> Stored:
    with tenant_scope(tenant):
        reserved = StorageLease.objects.filter(tenant=tenant).aggregate(total=Sum("reserved_bytes"))["total"]
    return Stored(reserved_bytes=reserved or 0)


def _no_room(size_bytes: int, account: StorageAccount, limit: int) -> ApplicationError:
    used, reserved = account.used_bytes, account.reserved_bytes
    free = max(0, limit - used - reserved)
    return ApplicationError(
        code="quota_exceeded",
        status=409,
        detail=(
            f"{size_bytes} bytes more do not fit: of {limit} bytes of storage (storage_bytes) {used} are in use and "
            f"{reserved} reserved for uploads on their way, {free} are free. Delete what is no longer needed, or ask "
            "the operator for more."
        ),
        extra={"resource": Resource.STORAGE_BYTES.value, "limit": limit, "used": used, "reserved": reserved},
    )
