"""Stored bytes, which are billed by the hour. Needs the platform's scope."""

from tenants.billing.reconcile.comparison import Comparison
from tenants.models import Tenant
from tenants.quotas.storage import storage_expected, storage_of


def stored_bytes_are_the_files() -> Comparison:
    """Used and reserved bytes of every tenant are what its datasets, artifacts and uploads add up to."""
    books = Comparison()
    for tenant in Tenant.objects.order_by("pk"):
        expected, found = storage_expected(tenant), storage_of(tenant)
        books.equal(tenant.pk, "used bytes", expected.used_bytes, found.used_bytes)
        books.equal(tenant.pk, "reserved bytes", expected.reserved_bytes, found.reserved_bytes)
    return books
