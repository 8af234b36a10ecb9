"""Forwards of shapes that repeat, recorded once and replayed: hundreds of kernels by one launch (CUDA graphs).

A step of a few hundred tokens is launched longer than it is computed on a large GPU; a shape that came twice comes
again, as a dataset's batches and a simulator's seats do.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
Work = Callable[..., Tensors]
"""Of tensors alone: everything else it reads is the key's, and stays as it was when it was recorded."""
Record = Callable[[Work, Tensors], tuple[Callable[[], None], Tensors]]
"""Records work on these tensors: how to replay it, and the tensors it writes each time. Raises RuntimeError."""

REPEATS = 2  # a shape is recorded when it comes for this many-th time
SEEN_KEPT = 4096
_WARM_UPS = 2  # kernels choose their algorithms and libraries allocate their workspaces outside the recording
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Recorded:
    work: Work  # and what it holds: a recording reads that memory
    inputs: Tensors
    outputs: Tensors
    replay: Callable[[], None]


class GraphCache:
    """At most ``max_kept`` recordings, each with memory of its own; 0: none, everything is launched. Thread-safe."""

    def __init__(self, max_kept: int, *, record: Record | None = None) -> None:
        self._max_kept, self._record = max_kept, record or record_on_cuda
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Recorded] = OrderedDict()
        self._seen: OrderedDict[Hashable, int] = OrderedDict()
        self.replays = 0

    def run(self, key: Hashable, work: Work, inputs: Tensors) -> Tensors:
        """``work(*inputs)``. Work of one key differs in its inputs' values only; shapes and types are told apart here.

        The outputs are the caller's own.
        """
        if not self._max_kept:
            return work(*inputs)
        key = (key, tuple((x.shape, x.dtype) for x in inputs))
        with self._lock:  # a recording has one set of inputs
            recorded = self._kept.get(key) or self._record_if_due(key, work, inputs)
            if recorded is not None:
                self._kept.move_to_end(key)
                return self._replay(recorded, inputs)
        return work(*inputs)

    def _replay(self, recorded: _Recorded, inputs: Tensors) -> Tensors:
        for place, value in zip(recorded.inputs, inputs, strict=True):
            place.copy_(value)
        recorded.replay()
        self.replays += 1
        return tuple(output.clone() for output in recorded.outputs)

    def _record_if_due(self, key: Hashable, work: Work, inputs: Tensors) -> _Recorded | None:
        """None when the key is new, or could not be recorded before."""
        count = self._seen[key] = self._seen.get(key, 0) + 1
        self._seen.move_to_end(key)
        if len(self._seen) > SEEN_KEPT:
            self._seen.popitem(last=False)
        if count != REPEATS:
            return None
        own = tuple(value.clone() for value in inputs)
        while len(self._kept) >= self._max_kept:
            evicted, _ = self._kept.popitem(last=False)
            self._seen.pop(evicted, None)  # it may come back
        try:
            replay, outputs = self._record(work, own)
        except RuntimeError as error:  # out of memory is one
            _log.warning("a forward is launched kernel by kernel from now on: %s", error)
            return None
        recorded = self._kept[key] = _Recorded(work=work, inputs=own, outputs=outputs, replay=replay)
        return recorded


def record_on_cuda(work: Work, inputs: Tensors) -> tuple[Callable[[], None], Tensors]:
    """One CUDA graph. Other threads may use the device meanwhile."""
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(_WARM_UPS):
            work(*inputs)
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outputs = work(*inputs)
    return graph.replay, outputs
