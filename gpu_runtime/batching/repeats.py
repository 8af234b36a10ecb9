"""Samples of a group that are known to be equal run once; each asker gets rows of its own.

Known to be equal are prompts of words alone (whoever is told its state only asks the same for every frame), and
samples with views that go by one key: two tenants that train on the same frame.
"""

from collections.abc import Hashable, Sequence

from gpu_runtime.batching.feature import VLAFeature


def first_equal(features: Sequence[VLAFeature], owners: Sequence[Hashable] | None = None) -> list[int]:
    """For each sample the index of the first that is known to be equal; its own where none is.

    ``owners``: samples of different ones are never equal, as they go through different weights.
    """
    seen: dict[Hashable, int] = {}
    return [
        seen.setdefault((_identity(index, feature), None if owners is None else owners[index]), index)
        for index, feature in enumerate(features)
    ]


def without_repeats(features: Sequence[VLAFeature]) -> list[VLAFeature]:
    """The samples of one owner that a forward has to run."""
    return [features[index] for index in sorted(set(first_equal(features)))]


def _identity(index: int, feature: VLAFeature) -> Hashable:
    """A key never stands alone: samples of one key with other words or sizes are not taken for the same."""
    words = (feature.instruction, feature.query_tokens)
    if not feature.images:
        return words
    if feature.key is None:
        return index
    return (feature.key, words, tuple(image.shape for image in feature.images))
