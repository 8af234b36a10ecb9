"""What a resident, frozen base model offers to everybody above it.

Shapes: L rows of one sample at a tap, D width of the tap, Q query tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.repeats import without_repeats
from gpu_runtime.batching.signature import ImageView, PrefixSignature, group_key
from gpu_runtime.models.backbones.vision_reuse import ReuseCounts
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.protocol.messages import BaseModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Work that a base does once for several samples, or not at all. Each can be turned off and changes no number."""

    dedup_frames: bool = True  # of samples or pictures known to be equal one runs in a forward
    truncate_depth: bool = True  # a sample leaves the text stack after its deepest tap
    group_lora: bool = True  # tenants with an adapter share forward and backward; else each has its own


ALL_SAVINGS = Savings()


class Backbone(ABC):
    """A frozen vision-language model. Not an ``nn.Module``: no head can adopt it, train it or save it."""

    savings = ALL_SAVINGS
    info: BaseModelInfo
    attention: str
    prompt_template: str
    image_processing: str

    @property
    def vision_counts(self) -> ReuseCounts | None:
        """Pictures known from earlier calls and not; None: nothing of a picture is kept from call to call."""
        return None

    @property
    def group_key(self) -> str:
        """Compatibility class: requests that share it may share one packed forward."""
        return group_key(base=self.info.name, revision=self.info.revision, dtype=self.info.dtype)

    def signature(self, *, views: Sequence[ImageView], query_tokens: int, taps: Collection[str]) -> PrefixSignature:
        """The prefix contract of a policy on this base."""
        return PrefixSignature(
            base=self.info.name,
            revision=self.info.revision,
            dtype=self.info.dtype,
            attention=self.attention,
            prompt_template=self.prompt_template,
            image_processing=self.image_processing,
            views=tuple(views),
            query_tokens=query_tokens,
            taps=tuple(sorted(taps)),
        )

    @abstractmethod
    def tap_width(self, tap: str) -> int:
        """D at this tap. Raises ValueError for a tap this base doesn't have."""

    @abstractmethod
    def tap_rows(self, feature: VLAFeature, tap: str) -> int:
        """L at this tap for this sample."""

    @abstractmethod
    def tokens(self, feature: VLAFeature) -> int:
        """Prompt tokens of the sample, image tokens included. Raises ValueError for a sample this base can't read."""

    def tokens_together(self, features: Sequence[VLAFeature]) -> int:
        """Prompt tokens that a forward runs for samples of one owner: equal prompts of words alone run once."""
        distinct = without_repeats(features) if self.savings.dedup_frames else features
        return sum(self.tokens(feature) for feature in distinct)

    @abstractmethod
    def encode(self, features: Sequence[VLAFeature], taps: Sequence[Collection[str]]) -> list[dict[str, torch.Tensor]]:
        """Run the group; for each sample exactly the taps it asked for, [L, D] (``query``: [Q, D]) on the device.

        Raises ValueError naming the sample's index for a bad sample or tap; nothing has run then.
        """

    def lora_modules(self) -> dict[str, nn.Linear]:
        """Modules that LoRA can adapt, by path inside the model; none where the base can't be adapted."""
        return {}

    def encode_adapted(
        self,
        features: Sequence[VLAFeature],
        taps: Sequence[Collection[str]],
        adapters: Sequence[LoraAdapter | None],
        grad: bool,
    ) -> list[dict[str, torch.Tensor]]:
        """``encode`` with each sample's adapter (None: the base alone), in one packed forward over all.

        With ``grad`` the rows are differentiable to the adapters' parameters; the base itself never gets a gradient.
        Raises ValueError as ``encode`` does, and BaseMismatch for an adapter of another base.
        """
        raise ValueError(f"base {self.info.name!r}: can't be adapted")
