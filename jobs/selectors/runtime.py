"""What the runtime said of itself last: the same for every tenant, and without a word about any of them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.utils import timezone

from gpu_runtime.protocol.messages import BaseModelInfo, FeatureStoreStatus, RuntimeStatus, VisionReuseStatus
from jobs.models import RuntimeSnapshot

STALE_AFTER = timedelta(seconds=15)  # the relay looks every few seconds


class RuntimeState(StrEnum):
    """How far the newest account can be trusted."""

    READY = "ready"  # seen just now, takes work
    NOT_ACCEPTING = "not_accepting"  # seen just now, takes no new work; the reason is given
    UNREACHABLE = "unreachable"  # not seen for a while: figures are old
    NEVER_SEEN = "never_seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureStoreReport:
    """Kept features of demonstrations, of all labs together. Counts since the runtime's start."""

    hits: int
    misses: int
    ram_bytes: int
    file_bytes: int
    entries: int
    problem: str

    @property
    def hit_percent(self) -> float | None:
        """Of all frames that were looked up; None where none was."""
        return _percent(self.hits, self.misses)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionReuseReport:
    """Pictures of simulators, of all labs together. Counts since the runtime's start."""

    hits: int  # known, each from an earlier one of its own lab
    misses: int
    bytes: int

    @property
    def hit_percent(self) -> float | None:
        """Of all pictures that were shown; None where none was."""
        return _percent(self.hits, self.misses)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeReport:
    state: RuntimeState
    reason: str
    seen_at: datetime | None
    active_jobs: int
    services: list[dict[str, Any]]
    started_at: datetime | None = None  # of its process; None: not told
    restarts: int | None = None  # on its present journal, that is on these disks; None: not told
    feature_store: FeatureStoreReport | None = None  # None: not told, or nothing is kept
    vision_reuse: VisionReuseReport | None = None  # the same


def runtime_report() -> RuntimeReport:
    """Utilization of each service as measured by the runtime, and whether that is fresh."""
    snapshot = _newest()
    if snapshot is None:
        return RuntimeReport(state=RuntimeState.NEVER_SEEN, reason="", seen_at=None, active_jobs=0, services=[])
    status = RuntimeStatus.model_validate(snapshot.status)
    return RuntimeReport(
        state=_state(snapshot, status),
        reason=status.reason or "",
        seen_at=snapshot.seen_at,
        active_jobs=status.active_jobs,
        services=[service.model_dump(mode="json") for service in status.services],
        started_at=None if status.started_at_us is None else _moment(status.started_at_us),
        restarts=None if status.starts is None else status.starts - 1,
        feature_store=_features(status.feature_store),
        vision_reuse=_pictures(status.vision_reuse),
    )


def _features(told: FeatureStoreStatus | None) -> FeatureStoreReport | None:
    if told is None:
        return None
    return FeatureStoreReport(
        hits=told.hits,
        misses=told.misses,
        ram_bytes=told.ram_bytes,
        file_bytes=told.file_bytes,
        entries=told.entries,
        problem=told.problem or "",
    )


def _pictures(told: VisionReuseStatus | None) -> VisionReuseReport | None:
    return None if told is None else VisionReuseReport(hits=told.hits, misses=told.misses, bytes=told.bytes)


def _percent(hits: int, misses: int) -> float | None:
    asked = hits + misses
    return 100 * hits / asked if asked else None


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def runtime_bases() -> dict[str, BaseModelInfo]:
    """The resident base models as last reported, by name; empty before the runtime was first seen."""
    snapshot = _newest()
    if snapshot is None:
        return {}
    return {base.name: base for base in RuntimeStatus.model_validate(snapshot.status).bases}


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulators:
    """What the runtime's environment service offers, as last reported; None where that is not known."""

    seats_per_tenant: int | None = None
    namespaces: tuple[str, ...] | None = None


def runtime_simulators() -> Simulators:
    snapshot = _newest()
    if snapshot is None:
        return Simulators()
    status = RuntimeStatus.model_validate(snapshot.status)
    return Simulators(seats_per_tenant=status.env_seats_per_tenant, namespaces=status.env_namespaces)


def bases_offered() -> list[dict[str, Any]]:
    """Every base model of this deployment with what the runtime knows of it."""
    known = runtime_bases()
    return [
        {
            "name": entry.name,
            "random_weights": entry.random_weights,
            "resident": entry.name in known,
            "info": known[entry.name].model_dump(mode="json") if entry.name in known else None,
        }
        for entry in settings.JOYNEXUS_BASE_MODELS.values()
    ]


def _newest() -> RuntimeSnapshot | None:
    return RuntimeSnapshot.objects.order_by("-seen_at").first()


def _state(snapshot: RuntimeSnapshot, status: RuntimeStatus) -> RuntimeState:
    if timezone.now() - snapshot.seen_at > STALE_AFTER:
        return RuntimeState.UNREACHABLE
    return RuntimeState.READY if status.accepting else RuntimeState.NOT_ACCEPTING
