"""Whether anything of a tenant changed that its pages show: one signature per topic, from few and indexed rows.

A signature says nothing but "equal" or "different". Whoever keeps the old ones learns exactly which topics changed
meanwhile, however long that was; the content is read anew by whoever shows it.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from django.db.models import Count, Sum
from django.utils import timezone

from jobs.models import Job, RuntimeSnapshot
from jobs.selectors.runtime import STALE_AFTER
from jobs.states import LIVE
from tenants.audit.models import AuditEvent
from tenants.billing.models import BillingAccount, Budget, Invoice, MeterTotal
from tenants.datasets.models import Dataset, DatasetVersion, Upload, UploadState
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.scope import tenant_scope

_ACTS = 20  # newest rows of the audit log that are compared: some are committed after younger ones
_MONTHS = 2  # whose metered units are compared
# Nouns of acts that the rows of another topic tell already, exactly.
_TOLD_ELSEWHERE = frozenset(
    {
        "dataset",
        "dataset_version",
        "upload",
        "budget",
        "billing",
        "credit",
        "credit_note",
        "invoice",
        "payment",
        "price",
    }
)
_ENTRY = re.compile(r"[a-z]+-[0-9a-f]{16}")


class Topic(StrEnum):
    """What a page may show, and what one must be allowed to read to hear that it changed."""

    JOBS = "jobs"  # states, progress, what jobs made, what they are called
    DATASETS = "datasets"  # names, versions, uploads under way
    USAGE = "usage"  # metered units, budgets, credit
    RUNTIME = "runtime"  # a new account of itself, or none for a while


READ_BY: dict[Topic, Permission] = {
    Topic.JOBS: Permission.JOBS_READ,
    Topic.DATASETS: Permission.DATASETS_READ,
    Topic.USAGE: Permission.BILLING_READ,
    Topic.RUNTIME: Permission.RUNTIME_READ,
}
Signatures = Mapping[Topic, str]


def signatures(tenant: Tenant, permissions: Collection[Permission]) -> dict[Topic, str]:
    """The signature of every topic that these permissions allow, as of now."""
    with tenant_scope(tenant):
        return {
            topic: _digest(str(tenant.pk), _FACTS[topic](tenant))
            for topic, needed in READ_BY.items()
            if needed in permissions
        }


def changed(before: Signatures, now: Signatures) -> list[Topic]:
    """Topics whose signature is another one, or was not known."""
    return [topic for topic, own in now.items() if before.get(topic) != own]


def cursor_of(now: Signatures) -> str:
    """The signatures as one word of an address."""
    return "~".join(f"{topic}-{own}" for topic, own in now.items())


def signatures_of(cursor: str) -> dict[Topic, str] | None:
    """What `cursor_of` made of signatures; empty for an empty cursor, None for what it never made."""
    entries = cursor.split("~") if cursor else []
    if not all(_ENTRY.fullmatch(entry) for entry in entries):
        return None
    found = dict(entry.split("-") for entry in entries)
    if len(found) != len(entries) or not found.keys() <= set(Topic):
        return None
    return {Topic(name): own for name, own in found.items()}


def _jobs(tenant: Tenant) -> Any:
    """Live jobs count every change of theirs; one that ends leaves them, and one that is new has the newest number.

    What people do to jobs that have ended is in the audit log.
    """
    live = Job.objects.filter(state__in=LIVE).order_by("state").values("state")
    sums = live.annotate(count=Count("pk"), rows=Sum("last_seq"), steps=Sum("step"), made=Sum("described"))
    newest = Tenant.objects.filter(pk=tenant.pk).values_list("jobs_numbered", flat=True)
    acts = AuditEvent.objects.order_by("-occurred_at").values_list("pk", "verb")[:_ACTS]
    own = [key for key, verb in acts if verb.partition(".")[0] not in _TOLD_ELSEWHERE]
    return list(sums.values_list("state", "count", "rows", "steps", "made")), list(newest), own


def _datasets(tenant: Tenant) -> Any:
    names = Dataset.objects.aggregate(count=Count("pk"), changes=Sum("version"))
    versions = DatasetVersion.objects.order_by("state").values("state").annotate(count=Count("pk"))
    coming = Upload.objects.filter(state=UploadState.RECEIVING)
    received = coming.aggregate(count=Count("pk"), size=Sum("received_bytes"))
    return sorted(names.items()), list(versions.values_list("state", "count")), sorted(received.items())


def _usage(tenant: Tenant) -> Any:
    units = MeterTotal.objects.order_by("-month").values_list("month").annotate(units=Sum("quantity"))
    budgets = Budget.objects.order_by("pk").values_list("pk", "version", "ended_at")
    account = BillingAccount.objects.values_list("mode", "credit", "held")
    invoices = Invoice.objects.order_by("state").values_list("state").annotate(n=Count("pk"), paid=Count("paid_at"))
    return list(units[:_MONTHS]), list(budgets), list(account), list(invoices)


def _runtime(tenant: Tenant) -> Any:
    seen = RuntimeSnapshot.objects.order_by("-seen_at").values_list("seen_at", flat=True).first()
    return seen, seen is not None and timezone.now() - seen > STALE_AFTER


_FACTS = {Topic.JOBS: _jobs, Topic.DATASETS: _datasets, Topic.USAGE: _usage, Topic.RUNTIME: _runtime}


def _digest(*facts: Any) -> str:
    return blake2b(repr(facts).encode(), digest_size=8).hexdigest()
