"""Traces: everything needed to recompute a chunk's log-probability, one row per sample.

Shapes: B samples, C executed steps, A action dims.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gpu_runtime.models.errors import BatchMismatch

Trace = dict[str, Tensor]
"""Name -> [B, ...]. ``log_prob`` [B, C, A] is the behaviour policy's own; the rest depends on the policy."""


def split_trace(trace: Mapping[str, Tensor]) -> list[Trace]:
    """One trace of one sample each."""
    return [{name: value[i : i + 1] for name, value in trace.items()} for i in range(trace["log_prob"].shape[0])]


def join_traces(traces: Sequence[Mapping[str, Tensor]]) -> Trace:
    """Traces of any groups as one. Raises BatchMismatch when they are not of one kind."""
    if kinds := {tuple(sorted(trace)) for trace in traces[1:]} - {tuple(sorted(traces[0]))}:
        raise BatchMismatch(f"trace: tensors {list(kinds.pop())}, allowed: {sorted(traces[0])} as in the first")
    return {name: torch.cat([trace[name] for trace in traces]) for name in traces[0]}


def part(trace: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    """One tensor of a trace, outside any graph. Raises BatchMismatch unless it is there in this shape."""
    found = list(trace[name].shape) if name in trace else "missing"
    if found != list(shape):
        raise BatchMismatch(f"trace[{name!r}]: {found}, allowed: {list(shape)}")
    return trace[name].detach()
