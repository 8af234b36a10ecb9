"""Prompts of words alone repeat: whoever is told its state only asks the same for every frame.

Equal prompts have equal features, so one of them runs; each asker gets rows of its own, as for any other prompt.
"""

from collections.abc import Collection, Hashable, Sequence

from gpu_runtime.batching.collate import PreparedSample
from gpu_runtime.batching.feature import VLAFeature


def first_equal(samples: Sequence[PreparedSample], taps: Sequence[Collection[str]]) -> list[int]:
    """For each sample the index of the first with the same words and taps; a sample with views equals itself only."""
    seen: dict[Hashable, int] = {}
    return [
        index if sample.images else seen.setdefault((sample.ids_L.tobytes(), frozenset(asked)), index)
        for index, (sample, asked) in enumerate(zip(samples, taps, strict=True))
    ]


def without_repeats(features: Sequence[VLAFeature]) -> list[VLAFeature]:
    """The samples of one owner that a forward has to run."""
    distinct: dict[Hashable, VLAFeature] = {}
    for index, feature in enumerate(features):
        distinct.setdefault(index if feature.images else (feature.instruction, feature.query_tokens), feature)
    return list(distinct.values())
