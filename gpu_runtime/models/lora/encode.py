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

    Without any adapter it is ``encode``, with everything that saves it work. Raises what that raises.
    """
    if all(adapter is None for adapter in adapters):
        return backbone.encode(features, taps)
    return backbone.encode_adapted(features, taps, adapters, grad=grad)
