"""Published policy versions, and who still needs them.

Publishing pauses nobody: a request pins the version it was admitted with until its reply, the next request pins the
newer one. A version is dropped when it is not among the last K of its slot and nobody has it pinned.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeVar

from gpu_runtime.inference.errors import PinReleased, SlotExists, UnknownSlot, UnknownVersion, VersionOrder

P = TypeVar("P")


class SlotKey(NamedTuple):
    """A slot's name is its tenant's own: a foreign slot answers like a missing one."""

    tenant_id: str
    slot_id: str


@dataclass(slots=True, kw_only=True)
class _Slot(Generic[P]):
    key: SlotKey
    versions: dict[int, P] = field(default_factory=dict)  # in order of publication
    pins: Counter[int] = field(default_factory=Counter)
    last_version: int = -1
    closed: bool = False  # no new pins; dropped with the last one


class Pin(Generic[P]):
    """A policy that stays as long as this is held."""

    __slots__ = ("_policy", "slot", "version")

    def __init__(self, slot: SlotKey, version: int, policy: P) -> None:
        self.slot, self.version = slot, version
        self._policy: P | None = policy

    @property
    def policy(self) -> P:
        """Raises PinReleased."""
        if self._policy is None:
            raise PinReleased(f"version {self.version} of slot {self.slot.slot_id} was released")
        return self._policy

    @property
    def held(self) -> bool:
        return self._policy is not None

    def _let_go(self) -> None:
        self._policy = None


class PolicyStore(Generic[P]):
    """Reference counts by slot and version. Event loop only; policies themselves are immutable.

    ``on_gone(tenant_id, slot_id)``: a slot is closed, and nothing that it was asked for is under way any more.
    """

    def __init__(
        self, *, keep: int = 2, on_gone: Callable[[str, str], None] = lambda tenant_id, slot_id: None
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep: {keep}, allowed: 1 or more (the newest version is always kept)")
        self._keep, self._on_gone = keep, on_gone
        self._slots: dict[SlotKey, _Slot[P]] = {}
        self._closed: list[_Slot[P]] = []  # with pins left; the name may be in use again
        self._owners: dict[Pin[P], _Slot[P]] = {}

    def open(self, tenant_id: str, slot_id: str) -> None:
        """A slot without a version yet. Raises SlotExists."""
        key = SlotKey(tenant_id, slot_id)
        if key in self._slots:
            raise SlotExists(f"slot {slot_id} exists already")
        self._slots[key] = _Slot(key=key)

    def publish(self, tenant_id: str, slot_id: str, version: int, policy: P) -> None:
        """From here on "latest" is this version. Raises UnknownSlot, VersionOrder."""
        slot = self._slot(SlotKey(tenant_id, slot_id))
        if version <= slot.last_version:
            raise VersionOrder(f"version {version} of slot {slot_id}: allowed: above {slot.last_version}")
        slot.versions[version] = policy
        slot.last_version = version
        self._free(slot)

    def pin(self, tenant_id: str, slot_id: str, version: int | Literal["latest"] = "latest") -> Pin[P]:
        """Hold a version until ``unpin``. Raises UnknownSlot, UnknownVersion."""
        key = SlotKey(tenant_id, slot_id)
        slot = self._slot(key)
        wanted = slot.last_version if version == "latest" else version
        if wanted not in slot.versions:
            kept = f"versions {sorted(slot.versions)}" if slot.versions else "none yet"
            raise UnknownVersion(f"policy_version: {version!r} of slot {slot_id} is not kept, allowed: {kept}")
        pin = Pin(key, wanted, slot.versions[wanted])
        slot.pins[wanted] += 1
        self._owners[pin] = slot
        return pin

    def unpin(self, pin: Pin[P]) -> None:
        """Let go. Raises PinReleased the second time."""
        if not pin.held:
            raise PinReleased(f"version {pin.version} of slot {pin.slot.slot_id} was released already")
        slot = self._owners.pop(pin)
        pin._let_go()
        slot.pins[pin.version] -= 1
        if not slot.pins[pin.version]:
            del slot.pins[pin.version]
        self._free(slot)

    def close(self, tenant_id: str, slot_id: str) -> None:
        """No new pins; what is in flight finishes on its version. Raises UnknownSlot."""
        key = SlotKey(tenant_id, slot_id)
        slot = self._slot(key)
        del self._slots[key]
        slot.closed = True
        self._closed.append(slot)
        self._free(slot)

    def versions(self, tenant_id: str, slot_id: str) -> tuple[int, ...]:
        """Versions in memory, oldest first. Raises UnknownSlot."""
        return tuple(self._slot(SlotKey(tenant_id, slot_id)).versions)

    def latest(self, tenant_id: str, slot_id: str) -> int | None:
        """None before the first publication. Raises UnknownSlot."""
        slot = self._slot(SlotKey(tenant_id, slot_id))
        return slot.last_version if slot.versions else None

    def pinned(self) -> int:
        """Pins held, of all slots; zero when nothing is in flight."""
        return len(self._owners)

    def kept(self) -> int:
        """Policies in memory, those of closed slots included."""
        return sum(len(slot.versions) for slot in [*self._slots.values(), *self._closed])

    def _slot(self, key: SlotKey) -> _Slot[P]:
        try:
            return self._slots[key]
        except KeyError:
            raise UnknownSlot(f"slot {key.slot_id} does not exist") from None

    def _free(self, slot: _Slot[P]) -> None:
        newest = set() if slot.closed else set(list(slot.versions)[-self._keep :])
        for version in [version for version in slot.versions if version not in newest and version not in slot.pins]:
            del slot.versions[version]
        if slot.closed and not slot.versions:
            self._closed = [other for other in self._closed if other is not slot]
            self._on_gone(*slot.key)
