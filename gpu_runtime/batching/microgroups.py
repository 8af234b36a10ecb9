"""A group is cut into forwards that fit the device's caches; a sample is never split."""

from collections.abc import Sequence

from gpu_runtime.batching.collate import PreparedSample


def micro_groups(
    samples: Sequence[PreparedSample], *, needs_text: Sequence[bool], max_tokens: int
) -> list[tuple[int, ...]]:
    """Indices of the samples of each forward: at most ``max_tokens`` prompt tokens, or a single longer sample.

    Samples that skip the text stack come last, and equal layouts become neighbours, so that attention over them is
    one dense call. The order never depends on anything but the samples themselves.
    """
    order = sorted(
        range(len(samples)), key=lambda i: (not needs_text[i], samples[i].length, samples[i].layout.grids, i)
    )
    groups: list[list[int]] = []
    room = 0
    for index in order:
        if not groups or samples[index].length > room:
            groups.append([])
            room = max_tokens
        groups[-1].append(index)
        room -= samples[index].length
    return [tuple(group) for group in groups]
