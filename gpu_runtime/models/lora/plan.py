"""Which packed rows belong to which adapter, and which samples share a forward."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from gpu_runtime.batching.collate import PreparedSample
from gpu_runtime.models.lora.adapter import LoraAdapter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaptedRows:
    """``rows`` neighbouring packed tokens of one adapter, from ``start`` on; nobody reads them from ``depth`` on."""

    adapter: LoraAdapter
    start: int
    rows: int
    depth: int  # text layers


_ACTIVE: ContextVar[tuple[AdaptedRows, ...]] = ContextVar("adapted_rows", default=())


def active_rows() -> tuple[AdaptedRows, ...]:
    """Rows of the forward that this thread is running; none outside an adapted one."""
    return _ACTIVE.get()


@contextmanager
def adapting(plan: Sequence[AdaptedRows]) -> Iterator[None]:
    """Within it, this thread's text modules add each adapter's update to its rows."""
    token = _ACTIVE.set(tuple(plan))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def plan_rows(
    lengths: Sequence[int], depths: Sequence[int], adapters: Sequence[LoraAdapter | None]
) -> list[AdaptedRows]:
    """Rows of each adapter whose samples are packed in this order, one adapter's next to each other.

    A layer that only others need adapts nothing: its parameters keep no gradient, as when the tenant runs alone.
    """
    plan: list[AdaptedRows] = []
    start = 0
    for length, depth, adapter in zip(lengths, depths, adapters, strict=True):
        if adapter is not None:
            own = AdaptedRows(adapter=adapter, start=start, rows=length, depth=depth)
            if plan and plan[-1].adapter is adapter:
                last = plan.pop()
                own = AdaptedRows(
                    adapter=adapter, start=last.start, rows=last.rows + length, depth=max(last.depth, depth)
                )
            plan.append(own)
        start += length
    return plan


def adapted_groups(
    samples: Sequence[PreparedSample], adapters: Sequence[LoraAdapter | None], *, max_tokens: int
) -> list[list[int]]:
    """Indices of the samples of each forward: at most ``max_tokens`` prompt tokens, or a single longer sample.

    Where an adapter's samples are cut, and in which order its pieces run, depends on them alone; so the order in which
    its gradients are summed does too. Adapters of equal rank and rows are neighbours: their updates are stacked.
    """
    owned: dict[int, list[int]] = {}
    for index, adapter in enumerate(adapters):
        owned.setdefault(id(adapter), []).append(index)
    pieces = [piece for members in owned.values() for piece in _cut(samples, members, max_tokens)]
    pieces.sort(key=lambda piece: (_tokens(samples, piece), _rank(adapters[piece[0]])))
    groups: list[list[int]] = []
    present: set[int] = set()
    room = 0
    for piece in pieces:
        owner, tokens = id(adapters[piece[0]]), _tokens(samples, piece)
        if not groups or tokens > room or owner in present:
            groups.append([])
            present, room = set(), max_tokens
        groups[-1] += piece
        present.add(owner)
        room -= tokens
    return groups


def _cut(samples: Sequence[PreparedSample], members: Sequence[int], max_tokens: int) -> list[list[int]]:
    """One adapter's samples in their own order, in pieces that fit a forward."""
    pieces: list[list[int]] = []
    room = 0
    for index in members:
        if not pieces or samples[index].length > room:
            pieces.append([])
            room = max_tokens
        pieces[-1].append(index)
        room -= samples[index].length
    return pieces


def _tokens(samples: Sequence[PreparedSample], piece: Sequence[int]) -> int:
    return sum(samples[index].length for index in piece)


def _rank(adapter: LoraAdapter | None) -> int:
    return 0 if adapter is None else adapter.spec.rank
