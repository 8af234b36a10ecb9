"""Drained services: attempts that need one and have not begun wait for it, as accepted; those that have go on."""

from collections.abc import Mapping

from gpu_runtime.protocol.messages import ServiceStatus, SubmitJob
from gpu_runtime.protocol.services import SERVICES_OF_KIND, Service
from gpu_runtime.services.errors import Unavailable, Unknown
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.errors import StoreError
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.records import Write
from gpu_runtime.store.signal import Signal

_SHOWN_INSTEAD_OF = frozenset({"idle", "busy"})  # a service that is stopped is no better than drained


class Drains:
    """Event loop only. What is drained is in the journal before it has an effect, so that a restart changes nothing.

    ``changed`` wakes whoever waits for a place.
    """

    def __init__(self, *, journal: Journal, durability: Durability) -> None:
        self._durability = durability
        drained = journal.drained()
        self._reasons: Mapping[Service, str] = {name: drained[name] for name in Service if name in drained}
        self.changed = Signal()

    async def drain(self, name: str, reason: str) -> None:
        """Again replaces the reason. Raises Unknown, or Unavailable when it could not be made durable."""
        await self._become({**self._reasons, _service(name): reason})

    async def undrain(self, name: str) -> None:
        """Whoever waited begins; again is harmless. Raises as ``drain`` does."""
        service = _service(name)
        await self._become({other: why for other, why in self._reasons.items() if other is not service})

    def hold(self, submit: SubmitJob) -> bool:
        """Whether an attempt that has not begun has to wait."""
        return not SERVICES_OF_KIND[submit.spec.kind].isdisjoint(self._reasons)

    def shown(self, status: ServiceStatus) -> ServiceStatus:
        """What a service says of itself, and that it is drained."""
        reason = self._reasons.get(Service(status.service))
        if reason is None or status.state not in _SHOWN_INSTEAD_OF:
            return status
        return status.model_copy(update={"state": "draining", "reason": reason})

    async def _become(self, reasons: Mapping[Service, str]) -> None:
        try:
            await self._durability.write_now(Write(drained={str(service): why for service, why in reasons.items()}))
        except StoreError as error:
            raise Unavailable(error.code, str(error)) from error
        self._reasons = reasons
        self.changed.notify()


def _service(name: str) -> Service:
    try:
        return Service(name)
    except ValueError:
        raise Unknown("unknown_service", f"service {name!r}; allowed: {', '.join(Service)}", "service") from None
