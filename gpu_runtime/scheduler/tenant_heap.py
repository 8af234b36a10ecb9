"""A heap of tenants whose sort key changes while they are in it."""

import heapq

from gpu_runtime.protocol.ids import TenantId
from gpu_runtime.scheduler.fair_share import Tag


class TenantHeap:
    """Least tag first. A changed tag is pushed anew and the old entry dropped when it surfaces: O(log n)."""

    def __init__(self) -> None:
        self._tags: dict[TenantId, Tag] = {}
        self._heap: list[Tag] = []

    def __len__(self) -> int:
        return len(self._tags)

    def put(self, tag: Tag) -> None:
        """Enter a tenant, or move it to its new place."""
        if self._tags.get(tag.tenant_id) != tag:
            self._tags[tag.tenant_id] = tag
            heapq.heappush(self._heap, tag)

    def discard(self, tenant_id: TenantId) -> None:
        self._tags.pop(tenant_id, None)

    def top(self) -> Tag | None:
        while self._heap:
            tag = self._heap[0]
            if self._tags.get(tag.tenant_id) == tag:
                return tag
            heapq.heappop(self._heap)
        return None
