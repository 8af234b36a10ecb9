"""Qwen3-VL as a shared, frozen backbone.

Shapes: N packed rows at a tap, D width of the tap.
"""

from collections.abc import Callable, Collection, Hashable, Sequence

import torch

from gpu_runtime.batching.collate import PackedBatch, PreparedSample, collate
from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.batching.microgroups import micro_groups
from gpu_runtime.batching.repeats import first_equal
from gpu_runtime.batching.scatter import scatter
from gpu_runtime.batching.taps import IMAGE_TAPS, Tap, TapKind, parse_tap, plan_taps
from gpu_runtime.models.backbones.base import ALL_SAVINGS, Backbone, Savings
from gpu_runtime.models.backbones.frozen import FrozenQwen3VL
from gpu_runtime.models.backbones.graphs import GraphCache
from gpu_runtime.models.backbones.images import ImageProcessing
from gpu_runtime.models.backbones.packed_attention import PACKED_ATTENTION
from gpu_runtime.models.backbones.packed_forward import PackedForward, PackedOutputs
from gpu_runtime.models.backbones.prompt import PROMPT_TEMPLATE, PromptBuilder
from gpu_runtime.models.backbones.tokenizers import Tokenizer
from gpu_runtime.models.backbones.vision_reuse import ReuseCounts, VisionReuse
from gpu_runtime.models.lora.adapted_forward import require_own_base, run_adapted
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.protocol.messages import BaseModelInfo

Run = Callable[[Sequence[int], Sequence[dict[str, Tap]]], list[dict[str, torch.Tensor]]]
"""Rows of the samples of these numbers, at their taps."""


class Qwen3VLBackbone(Backbone):
    """One packed forward serves the union of its samples' taps.

    In float32 on the CPU a sample's features don't depend on its group: they equal its own features alone bit for
    bit, whatever the group and ``max_tokens_per_forward`` (products of few rows are padded for it, see
    ``RowStableLinear``; more than two threads may split element-wise loops inside a vector and lose the last bit).
    On CUDA kernels are chosen by size, and only closeness is promised.
    """

    attention = PACKED_ATTENTION
    prompt_template = PROMPT_TEMPLATE

    def __init__(
        self,
        *,
        model: FrozenQwen3VL,
        tokenizer: Tokenizer,
        processing: ImageProcessing,
        info: BaseModelInfo,
        max_tokens_per_forward: int,
        vision_cache_bytes: int = 0,
        savings: Savings = ALL_SAVINGS,
        graphs: GraphCache | None = None,
    ) -> None:
        self.info, self.savings = info, savings
        self.image_processing = processing.description
        self.model = model
        self._processing = processing
        self._prompts = PromptBuilder(tokenizer)
        self.vision_reuse = VisionReuse(vision_cache_bytes, dedup=savings.dedup_frames)
        self._forward = PackedForward(model, processing, self.vision_reuse, graphs)
        self.limit_tokens(max_tokens_per_forward)
        self._widths = {
            TapKind.VISION: model.vision_settings.hidden_size,
            TapKind.MERGED: model.text_settings.hidden_size,
            TapKind.LAYER: model.text_settings.hidden_size,
            TapKind.QUERY: model.text_settings.hidden_size,
        }

    @property
    def vision_counts(self) -> ReuseCounts | None:
        return self.vision_reuse.counts if self.vision_reuse.keeps else None

    def limit_tokens(self, max_tokens_per_forward: int) -> None:
        """Prompt tokens of one forward from now on. Raises ValueError below 1."""
        if max_tokens_per_forward < 1:
            raise ValueError(f"max_tokens_per_forward: {max_tokens_per_forward} must be at least 1")
        self._max_tokens = max_tokens_per_forward

    def tap_width(self, tap: str) -> int:
        return self._widths[self._parse(tap).kind]

    def tap_rows(self, feature: VLAFeature, tap: str) -> int:
        sample = self._prepare(feature)
        rows = {
            TapKind.VISION: sum(grid.patches for grid in sample.layout.grids),
            TapKind.MERGED: sum(grid.tokens for grid in sample.layout.grids),
            TapKind.LAYER: sample.length,
            TapKind.QUERY: feature.query_tokens,
        }
        return rows[self._parse(tap).kind]

    def tokens(self, feature: VLAFeature) -> int:
        return self._prepare(feature).length

    def encode(self, features: Sequence[VLAFeature], taps: Sequence[Collection[str]]) -> list[dict[str, torch.Tensor]]:
        if len(features) != len(taps):
            raise ValueError(f"taps: {len(taps)} entries for {len(features)} samples")
        samples, asked = self._prepare_group(features, taps)
        run: Run = lambda chosen, wanted: self._run([samples[index] for index in chosen], wanted)  # noqa: E731
        return self._each_once(features, asked, [None] * len(features), run)

    def lora_modules(self) -> dict[str, torch.nn.Linear]:
        layers = self.model.language_model.layers
        return {
            f"language_model.layers.{path}": module
            for path, module in layers.named_modules()
            if isinstance(module, torch.nn.Linear)
        }

    def encode_adapted(
        self,
        features: Sequence[VLAFeature],
        taps: Sequence[Collection[str]],
        adapters: Sequence[LoraAdapter | None],
        grad: bool,
    ) -> list[dict[str, torch.Tensor]]:
        if not len(features) == len(taps) == len(adapters):
            raise ValueError(
                f"{len(features)} samples, {len(taps)} taps and {len(adapters)} adapters: must be as many"
            )
        require_own_base(self, adapters)
        samples, asked = self._prepare_group(features, taps)

        def run(chosen: Sequence[int], wanted: Sequence[dict[str, Tap]]) -> list[dict[str, torch.Tensor]]:
            return run_adapted(
                self,
                self._forward,
                [samples[index] for index in chosen],
                wanted,
                [adapters[index] for index in chosen],
                max_tokens=self._max_tokens,
                grad=grad,
                deliver=_deliver,
                beyond=self._beyond,
            )

        return self._each_once(features, asked, [id(adapter) for adapter in adapters], run)

    @property
    def _beyond(self) -> tuple[Tap, ...]:
        """What every sample runs to besides its own taps: the end of the stack, where depth is not saved."""
        last = Tap(kind=TapKind.LAYER, layer=self.info.layers - 1)
        return () if self.savings.truncate_depth else (last,)

    def _each_once(
        self,
        features: Sequence[VLAFeature],
        asked_taps: Sequence[dict[str, Tap]],
        owners: Sequence[Hashable],
        run: Run,
    ) -> list[dict[str, torch.Tensor]]:
        """Rows of every sample; of an owner's equal samples one runs, for everybody's taps."""
        same_as = first_equal(features, owners) if self.savings.dedup_frames else list(range(len(features)))
        wanted: dict[int, dict[str, Tap]] = {}
        for first, asked in zip(same_as, asked_taps, strict=True):
            wanted.setdefault(first, {}).update(asked)
        rows = dict(zip(wanted, run(list(wanted), list(wanted.values())), strict=True))
        return [
            {text: rows[first][text] if first == index else rows[first][text].clone() for text in asked}
            for index, (first, asked) in enumerate(zip(same_as, asked_taps, strict=True))
        ]

    def _run(
        self, samples: Sequence[PreparedSample], parsed: Sequence[dict[str, Tap]]
    ) -> list[dict[str, torch.Tensor]]:
        """Forwards of bounded size over all samples."""
        depths = [plan_taps([*asked.values(), *self._beyond]).depth for asked in parsed]
        results: list[dict[str, torch.Tensor]] = [{} for _ in samples]
        for members in micro_groups(samples, depths=depths, max_tokens=self._max_tokens):
            batch = collate([samples[index] for index in members], depths=[depths[index] for index in members])
            asked = [parsed[index] for index in members]
            plan = plan_taps([*(tap for sample in asked for tap in sample.values()), *self._beyond])
            outputs = self._forward.run(batch, plan)
            for index, delivered in zip(members, _deliver(batch, outputs, asked), strict=True):
                results[index] = delivered
        return results

    def _prepare_group(
        self, features: Sequence[VLAFeature], taps: Sequence[Collection[str]]
    ) -> tuple[list[PreparedSample], list[dict[str, Tap]]]:
        """Everything that can be refused is refused here, before any device work."""
        samples, parsed = [], []
        for index, (feature, asked) in enumerate(zip(features, taps, strict=True)):
            try:
                samples.append(self._prepare(feature))
                parsed.append({text: self._parse(text) for text in asked})
                if TapKind.QUERY in asked and not feature.query_tokens:
                    raise ValueError("query_tokens: the tap 'query' needs at least one query token, got 0")
                if not feature.images and (blind := IMAGE_TAPS.intersection(asked)):
                    raise ValueError(f"images: the tap {min(blind)!r} needs at least one view, got none")
            except ValueError as error:
                raise ValueError(f"sample {index}: {error}") from error
        return samples, parsed

    def _prepare(self, feature: VLAFeature) -> PreparedSample:
        return self._prompts.prepare(feature, [self._processing.grid(image) for image in feature.images])

    def _parse(self, tap: str) -> Tap:
        return parse_tap(tap, layers=self.info.layers)


def _deliver(
    batch: PackedBatch, outputs: PackedOutputs, asked: Sequence[dict[str, Tap]]
) -> list[dict[str, torch.Tensor]]:
    """Each sample's rows at the taps it asked for."""
    delivered: list[dict[str, torch.Tensor]] = [{} for _ in asked]
    for text, tap in {text: tap for sample in asked for text, tap in sample.items()}.items():
        rows_ND, counts = _rows_at(batch, outputs, tap)
        for sample, rows in zip(
            delivered, scatter(rows_ND, counts, [text in sample for sample in asked]), strict=False
        ):
            if rows is not None:
                sample[text] = rows
    return delivered


def _rows_at(batch: PackedBatch, outputs: PackedOutputs, tap: Tap) -> tuple[torch.Tensor, Sequence[int]]:
    """Flat rows at one tap, and how many belong to each sample."""
    if tap.kind is TapKind.VISION:
        return outputs.vision_PD, batch.patch_counts
    if tap.layer is None:
        assert outputs.merged_MD is not None
        return outputs.merged_MD, batch.image_token_counts
    rows_ND, running = outputs.layers[tap.layer], batch.running(tap.layer)
    if tap.kind is TapKind.QUERY:
        counts = batch.query_counts[:running]
        return rows_ND[torch.from_numpy(batch.query_index_Q[: sum(counts)]).to(rows_ND.device)], counts
    return rows_ND, batch.tokens.lengths[:running]
