"""What the runtime measured while the demo ran: the books of each service, and how busy each was."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from jobs.models import DeviceSpan

SERVICES = ("training", "inference", "environment")
COMPUTE_METERS: Mapping[str, str] = {
    "training": "train.compute_us",
    "inference": "predict.compute_us",
    "environment": "env.compute_us",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBooks:
    """One service since the demo's first job. ``metered_us``: what all tenants' usage adds up to."""

    busy_us: int
    overhead_us: int
    metered_us: int

    @property
    def unattributed_us(self) -> int:
        return self.busy_us - self.overhead_us - self.metered_us


def service_books(since: datetime, usages: Iterable[Mapping[str, int]]) -> dict[str, ServiceBooks]:
    """Measured time of each service from ``since`` on beside the usage of all tenants, each by meter."""
    usages = list(usages)
    books = {}
    for service in SERVICES:
        measured = DeviceSpan.objects.filter(service=service, started_at__gte=since).aggregate(
            busy=Sum("busy_us"), overhead=Sum("overhead_us")
        )
        metered_us = sum(usage.get(COMPUTE_METERS[service], 0) for usage in usages)
        books[service] = ServiceBooks(
            busy_us=measured["busy"] or 0, overhead_us=measured["overhead"] or 0, metered_us=metered_us
        )
    return books


def utilization(begin: datetime, end: datetime, *, environment_processes: int) -> dict[str, float]:
    """Busy share of each service from ``begin`` to ``end``.

    Environment processes work side by side, and their time is added up: their share is of all of them together.
    """
    window_us = max(1.0, (end - begin).total_seconds() * 1e6)
    lanes = {"environment": environment_processes}
    busy = {
        service: DeviceSpan.objects.filter(service=service, started_at__gte=begin, started_at__lt=end).aggregate(
            busy=Sum("busy_us")
        )["busy"]
        or 0
        for service in SERVICES
    }
    return {service: round(busy[service] / window_us / max(1, lanes.get(service, 1)), 3) for service in SERVICES}
