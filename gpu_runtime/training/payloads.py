"""Payloads of partitions on their way to disk: durable, within their bounds, and wanted until the end."""

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

import numpy as np

from gpu_runtime.store.durability import Durability
from gpu_runtime.store.errors import PartitionsFull, PartitionTooLarge
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.store.signal import Signal

Payload = tuple[Mapping[str, np.ndarray], Mapping[str, str]]
"""(arrays, metadata) of one partition: ``work.pack_batch`` and ``rl.batch.pack_rl_batch`` make them."""

_RECHECK_S = 1.0


class Payloads:
    """Written once, by partition id. ``freed`` is notified when room may have come back."""

    def __init__(
        self, partitions: PartitionStore, durability: Durability, files: Executor, max_bytes: int, freed: Signal
    ) -> None:
        self._partitions, self._durability, self._files = partitions, durability, files
        self._max_bytes, self._freed = max_bytes, freed

    async def write(self, partition_id: str, payload: Payload, over: Callable[[], bool]) -> int | None:
        """Bytes on disk, once there is room for them; None when it was ``over`` before there was.

        Raises PartitionTooLarge when there never will be.
        """
        arrays, metadata = payload
        self.refuse_too_large(sum(array.nbytes for array in arrays.values()))
        write = functools.partial(self._partitions.put, partition_id, arrays, metadata)
        while not over():
            try:
                return await self._durability.persist(write, self._files, unless=over)
            except PartitionsFull:
                await self._freed.wait(timeout_s=_RECHECK_S)
            except Exception:
                if not over():
                    raise
        return None

    def clear(self, partition_id: str) -> None:
        """Return the bytes, if there are any."""
        self._partitions.clear(partition_id)

    def refuse_too_large(self, size: int) -> None:
        """Raise PartitionTooLarge for a payload of so many bytes that there never would be room for it."""
        if size > self._max_bytes:
            advice = "use a smaller batch, image size or number of cameras, or fewer frames to fit on"
            raise PartitionTooLarge(f"one batch holds {size} bytes; allowed: at most {self._max_bytes}; {advice}")
