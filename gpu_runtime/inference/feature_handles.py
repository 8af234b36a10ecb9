"""Prefix features kept for a trainer: whoever has the observation and its handle needs no second backbone pass.

A handle is a hash of tenant, prefix contract and observation. So the trainer checks it against the observation that it
names, a foreign handle is an unknown one even for an equal picture, and what was evicted is computed again: the base
is frozen, so the result is the same. Policy versions are not in it: they change nothing in front of the head.

Jobs of one tenant share what they both looked at; it is kept until the last of them has ended.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.handles import handle_of
from gpu_runtime.inference.messages import Handle
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.models.heads.base import Features


@dataclass(slots=True, kw_only=True)
class _Kept:
    """``slots``: the policy slots of its tenant that looked at it."""

    rows: Features
    slots: set[str] = field(default_factory=set)


class FeatureHandles:
    """Bounded in bytes. Room comes from the tenant that holds most, its least recently used first. Thread-safe.

    Copies on the CPU in the base's own precision; what is handed out is to be read only.
    """

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes: {max_bytes}, allowed: 0 (keep nothing) or more")
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: dict[str, OrderedDict[Handle, _Kept]] = {}  # by tenant
        self._bytes: dict[str, int] = {}

    @property
    def live_bytes(self) -> int:
        return sum(self._bytes.values())

    def put(self, tenant_id: str, slot_id: str, policy: ServedPolicy, feature: VLAFeature, rows: Features) -> Handle:
        """Keep one observation's features for a slot, if they fit at all; the handle is valid either way."""
        handle = handle_of(tenant_id, policy.prefix_hash, feature)
        self.put_rows(tenant_id, slot_id, handle, rows)
        return handle

    def put_rows(self, tenant_id: str, slot_id: str, handle: Handle, rows: Features) -> None:
        """Keep features under a name made by ``handle_of``, if they fit at all."""
        copied = {tap: value.detach().to("cpu", copy=True) for tap, value in rows.items()}
        size = _bytes_of(copied)
        with self._lock:
            if size > self._max_bytes:
                return
            if not self._touch(tenant_id, handle):
                self._kept.setdefault(tenant_id, OrderedDict())[handle] = _Kept(rows=copied)
                self._bytes[tenant_id] = self._bytes.get(tenant_id, 0) + size
            self._kept[tenant_id][handle].slots.add(slot_id)
            self._make_room()

    def peek(self, tenant_id: str, handle: Handle) -> Features | None:
        """What is kept for this tenant under this name, on the CPU; None: compute it. Others' names find nothing."""
        with self._lock:
            return self._kept[tenant_id][handle].rows if self._touch(tenant_id, handle) else None

    def holds(self, tenant_id: str, handle: Handle) -> bool:
        """Kept, so that whoever trains on it needs no forward."""
        with self._lock:
            return handle in self._kept.get(tenant_id, ())

    def release(self, tenant_id: str, slot_id: str) -> None:
        """A slot is gone: drop what no other slot of its tenant looked at. A second time does nothing."""
        with self._lock:
            for handle, kept in list(self._kept.get(tenant_id, {}).items()):
                kept.slots.discard(slot_id)
                if not kept.slots:
                    self._drop(tenant_id, handle)

    def _touch(self, tenant_id: str, handle: Handle) -> bool:
        """True when it is kept; it is then the most recently used one."""
        kept = self._kept.get(tenant_id, OrderedDict())
        if handle not in kept:
            return False
        kept.move_to_end(handle)
        return True

    def _make_room(self) -> None:
        while self.live_bytes > self._max_bytes:
            largest = max(self._bytes, key=self._bytes.__getitem__)
            self._drop(largest, next(iter(self._kept[largest])))

    def _drop(self, tenant_id: str, handle: Handle) -> None:
        self._bytes[tenant_id] -= _bytes_of(self._kept[tenant_id].pop(handle).rows)
        if not self._kept[tenant_id]:
            del self._kept[tenant_id], self._bytes[tenant_id]


def _bytes_of(rows: Features) -> int:
    return sum(value.numel() * value.element_size() for value in rows.values())
