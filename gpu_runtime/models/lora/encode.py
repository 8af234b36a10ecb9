"""Features of a group in which some have an adapter of their own."""

from collections.abc import Collection, Sequence

from torch import Tensor

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.lora.adapter import LoraAdapter


def encode_with(
    backbone: Backbone,
    features: Sequence[VLAFeature],
    taps: Sequence[Collection[str]],
    adapters: Sequence[LoraAdapter | None],
    *,
    grad: bool = False,
) -> list[dict[str, Tensor]]:
    """One packed forward of all, each sample with its adapter (None: the base as it is); ``grad``: differentiable.

    Without any adapter it is ``encode``. Where the base doesn't group adapters, each adapter's samples have a forward
    of their own, and those without one share theirs. Raises what ``encode`` raises.
    """
    if all(adapter is None for adapter in adapters):
        return backbone.encode(features, taps)
    if backbone.savings.group_lora:
        return backbone.encode_adapted(features, taps, adapters, grad=grad)
    return _one_by_one(backbone, features, taps, adapters, grad=grad)


def _one_by_one(
    backbone: Backbone,
    features: Sequence[VLAFeature],
    taps: Sequence[Collection[str]],
    adapters: Sequence[LoraAdapter | None],
    *,
    grad: bool,
) -> list[dict[str, Tensor]]:
    owned: dict[int, list[int]] = {}
    for index, adapter in enumerate(adapters):
        owned.setdefault(id(adapter), []).append(index)
    rows: list[dict[str, Tensor]] = [{} for _ in features]
    for members in owned.values():
        own, asked = [features[index] for index in members], [taps[index] for index in members]
        adapter = adapters[members[0]]
        if adapter is None:
            encoded = backbone.encode(own, asked)
        else:
            encoded = backbone.encode_adapted(own, asked, [adapter] * len(members), grad=grad)
        for index, found in zip(members, encoded, strict=True):
            rows[index] = found
    return rows
