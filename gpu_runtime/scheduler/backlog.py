"""Waiting requests, each tenant's in its own order within each compatibility class."""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpu_runtime.protocol.ids import TenantId

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[K]):
    """Something one tenant wants to run in a group batch."""

    request_id: K
    tenant_id: TenantId
    group_key: str  # compatibility class: only equal keys share a forward
    tokens: int  # size, counted against the batch limit
    order: tuple[int, ...]  # among the tenant's own requests, smallest first
    fire_at_us: int  # a batch starts by then at the latest, if the device is free


class Backlog(Generic[K]):
    """Add and remove in O(log n); removed requests leave the heaps when they surface."""

    def __init__(self) -> None:
        self._waiting: dict[K, Request[K]] = {}
        self._lines: defaultdict[TenantId, dict[str, list[tuple[tuple[int, ...], K]]]] = defaultdict(dict)
        self._fire_at: list[tuple[int, K]] = []
        self._tokens: defaultdict[str, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: K) -> bool:
        return request_id in self._waiting

    def __iter__(self) -> Iterator[Request[K]]:
        return iter(self._waiting.values())

    def add(self, request: Request[K]) -> None:
        assert request.request_id not in self._waiting, f"{request.request_id} waits already"
        self._waiting[request.request_id] = request
        line = self._lines[request.tenant_id].setdefault(request.group_key, [])
        heapq.heappush(line, (request.order, request.request_id))
        heapq.heappush(self._fire_at, (request.fire_at_us, request.request_id))
        self._tokens[request.group_key] += request.tokens

    def remove(self, request_id: K) -> Request[K]:
        request = self._waiting.pop(request_id)
        self._tokens[request.group_key] -= request.tokens
        self._trim(request.tenant_id, request.group_key)
        return request

    def group_keys(self, tenant_id: TenantId) -> list[str]:
        """Classes in which the tenant has something waiting."""
        return list(self._lines.get(tenant_id, ()))

    def first(self, tenant_id: TenantId, group_key: str) -> Request[K] | None:
        """The tenant's next request of one class."""
        line = self._lines.get(tenant_id, {}).get(group_key)
        return self._waiting[line[0][1]] if line else None

    def oldest(self, tenant_id: TenantId) -> Request[K]:
        """The tenant's next request of any class. The tenant must be backlogged."""
        _, request_id = min(line[0] for line in self._lines[tenant_id].values())
        return self._waiting[request_id]

    def tokens(self, group_key: str) -> int:
        return self._tokens[group_key]

    def fire_at_us(self) -> int | None:
        """When the longest waiting request wants a batch to start."""
        while self._fire_at:
            fire_at_us, request_id = self._fire_at[0]
            request = self._waiting.get(request_id)
            if request is not None and request.fire_at_us == fire_at_us:
                return fire_at_us
            heapq.heappop(self._fire_at)
        return None

    def _trim(self, tenant_id: TenantId, group_key: str) -> None:
        """Keep each line's head alive, and no empty lines: an idle tenant costs nothing."""
        lines = self._lines[tenant_id]
        line = lines[group_key]
        while line and not self._is_current(*line[0], group_key):
            heapq.heappop(line)
        if not line:
            del lines[group_key]
        if not lines:
            del self._lines[tenant_id]

    def _is_current(self, order: tuple[int, ...], request_id: K, group_key: str) -> bool:
        request = self._waiting.get(request_id)
        return request is not None and request.order == order and request.group_key == group_key
