"""A group is cut into forwards that fit the device's caches; a sample is never split."""

from collections.abc import Sequence

from gpu_runtime.batching.collate import PreparedSample


def micro_groups(
    samples: Sequence[PreparedSample], *, depths: Sequence[int], max_tokens: int
) -> list[tuple[int, ...]]:
    """Indices of the samples of each forward: at most ``max_tokens`` prompt tokens, or a single longer sample.

    Samples that run through more text layers (``depths``) come first, those without any last, so that a forward can
    leave finished ones behind; equal layouts become neighbours, so that attention over them is one dense call. The
    order never depends on anything but the samples themselves.
    """
    order = sorted(range(len(samples)), key=lambda i: (-depths[i], samples[i].length, samples[i].layout.grids, i))
    lengths = [samples[index].length for index in order]
    full = _cut(lengths, max_tokens=max_tokens, enough=max_tokens)
    # A last forward of a sample or two costs far more per token: spread the tokens where that makes none more.
    even = _cut(lengths, max_tokens=max_tokens, enough=-(-sum(lengths) // max(1, len(full))))
    counts = even if len(even) == len(full) else full
    ends = [sum(counts[: place + 1]) for place in range(len(counts))]
    return [tuple(order[end - count : end]) for count, end in zip(counts, ends, strict=True)]


def _cut(lengths: Sequence[int], *, max_tokens: int, enough: int) -> list[int]:
    """Samples of each forward when one is closed with ``enough`` tokens, or before it had more than ``max_tokens``."""
    counts: list[int] = []
    held = enough
    for length in lengths:
        if held >= enough or held + length > max_tokens:
            counts.append(0)
            held = 0
        counts[-1] += 1
        held += length
    return counts
