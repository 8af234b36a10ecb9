"""The live requests of each session, in the order in which they came."""

from collections import Counter, deque
from typing import NamedTuple

from gpu_runtime.protocol.ids import RequestId, TenantId


class SessionKey(NamedTuple):
    """A session's name is its tenant's own: equal names of two tenants are two sessions."""

    tenant_id: TenantId
    session_id: str


class SessionLines:
    """One line per session; a session that has nothing live costs nothing."""

    def __init__(self) -> None:
        self._lines: dict[SessionKey, deque[RequestId]] = {}
        self._per_tenant: Counter[TenantId] = Counter()

    def __len__(self) -> int:
        return self._per_tenant.total()

    def count(self, session: SessionKey) -> int:
        return len(self._lines.get(session, ()))

    def count_of(self, tenant_id: TenantId) -> int:
        return self._per_tenant[tenant_id]

    def head(self, session: SessionKey) -> RequestId | None:
        """The only request of the session that may run next, or runs now."""
        line = self._lines.get(session)
        return line[0] if line else None

    def add(self, session: SessionKey, request_id: RequestId) -> None:
        self._lines.setdefault(session, deque()).append(request_id)
        self._per_tenant[session.tenant_id] += 1

    def remove(self, session: SessionKey, request_id: RequestId) -> None:
        """O(requests of the session), which its bound keeps few."""
        line = self._lines[session]
        line.remove(request_id)
        if not line:
            del self._lines[session]
        self._per_tenant[session.tenant_id] -= 1
        if not self._per_tenant[session.tenant_id]:
            del self._per_tenant[session.tenant_id]
