"""Qwen3-VL over a packed batch: transformers' own layers, driven one by one over flat tokens.

The model's ``forward`` is never called: it pads, recomputes positions with Python loops and keeps ``rope_deltas`` of
the last caller. Positions come from the layout cache instead, and only the layers that a tap needs run.

Shapes: P patches, V values of one frame of a patch, M image tokens, N prompt tokens, D width (vision or text),
R rotary width, C channels, F frames, H and W pixels of a patch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

import numpy as np
import torch
from torch import nn
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from gpu_runtime.batching.collate import PackedBatch, Segments
from gpu_runtime.batching.layout import ImageGrid
from gpu_runtime.batching.taps import TapPlan
from gpu_runtime.models.backbones.frozen import FrozenQwen3VL, RowStableLinear
from gpu_runtime.models.backbones.graphs import GraphCache
from gpu_runtime.models.backbones.images import ImageProcessing
from gpu_runtime.models.backbones.packed_attention import PACKED_ATTENTION, DeviceSegments
from gpu_runtime.models.backbones.text_shape import TextShape
from gpu_runtime.models.backbones.vision_reuse import VisionOutputs, VisionReuse
from gpu_runtime.models.lora.plan import active_rows

GRIDS_KEPT = 64
"""Image sizes in use at once; the tables of one size are a few hundred kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedOutputs:
    """Flat rows at every tap of the plan."""

    vision_PD: torch.Tensor
    merged_MD: torch.Tensor | None
    layers: dict[int, torch.Tensor]  # text layer -> [N, D]


class PackedForward:
    """One frozen model on one device."""

    def __init__(
        self,
        model: FrozenQwen3VL,
        processing: ImageProcessing,
        vision_reuse: VisionReuse | None = None,
        graphs: GraphCache | None = None,
    ) -> None:
        self._reuse, self._graphs = vision_reuse or VisionReuse(0), graphs or GraphCache(0)
        self._vision = model.visual
        self._text = model.language_model
        self._processing = processing
        self._patch_embedding = _as_linear(model.visual.patch_embed.proj)
        self._grid_tables = lru_cache(maxsize=GRIDS_KEPT)(self._make_grid_tables)

    @property
    def device(self) -> torch.device:
        return self._patch_embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self._patch_embedding.weight.dtype

    @torch.no_grad()
    def run(self, batch: PackedBatch, plan: TapPlan, *, grad: bool = False) -> PackedOutputs:
        """Everything the plan asks for, and no block beyond it; with ``grad`` the text stack keeps its graph.

        Raises RuntimeError when somebody switched the model's attention: any other would mix the samples.
        """
        for part in (self._vision, self._text):
            if part.config._attn_implementation != PACKED_ATTENTION:
                raise RuntimeError(f"attention: {part.config._attn_implementation!r}, needed is {PACKED_ATTENTION!r}")
        vision = self._reuse.outputs(
            batch.images, batch.grids, batch.scopes, deepstack=plan.depth > 0, run=self._run_vision
        )
        text_patches = sum(batch.patch_counts[: batch.text_samples])
        merged_MD = None
        if plan.merged:
            merged_MD = self._merge(self._vision.merger, vision.last_PD)
        elif plan.depth:
            merged_MD = self._merge(self._vision.merger, vision.last_PD[:text_patches])
        with torch.set_grad_enabled(grad):
            layers = self._run_text(batch, plan, vision, merged_MD) if merged_MD is not None else {}
        return PackedOutputs(vision_PD=vision.last_PD, merged_MD=merged_MD, layers=layers)

    def _run_vision(self, images: Sequence[np.ndarray], grids: Sequence[ImageGrid], deepstack: bool) -> VisionOutputs:
        """Every view attends within itself; without any view there are no rows."""
        if not images:
            none_PD = torch.empty(0, self._vision.config.hidden_size, device=self.device, dtype=self.dtype)
            return VisionOutputs(last_PD=none_PD, deepstack=(none_PD,) * len(self._vision.deepstack_visual_indexes))
        positions, cosines, sines = zip(*(self._grid_tables(grid) for grid in grids), strict=True)
        patches_PV = self._processing.patchify(images, self.device).to(self.dtype)
        counts = tuple(grid.patches for grid in grids)
        # one chunk for transformers; the segments are ours
        work = partial(self._vision_blocks, self._segments(counts), torch.tensor([0, sum(counts)]), deepstack)
        inputs = (patches_PV, torch.cat(positions), torch.cat(cosines), torch.cat(sines))
        last_PD, *kept = self._graphs.run(("vision", counts, deepstack), work, inputs)
        return VisionOutputs(last_PD=last_PD, deepstack=tuple(kept))

    def _vision_blocks(
        self,
        segments: DeviceSegments,
        whole: torch.Tensor,
        deepstack: bool,
        patches_PV: torch.Tensor,
        positions_PD: torch.Tensor,
        cosines_PR: torch.Tensor,
        sines_PR: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """The last block's rows, then those that the text layers want."""
        hidden_PD = self._patch_embedding(patches_PV) + positions_PD
        rotary = cosines_PR, sines_PR
        kept: dict[int, torch.Tensor] = {}
        for index, block in enumerate(self._vision.blocks):
            hidden_PD = block(hidden_PD, cu_seqlens=whole, position_embeddings=rotary, segments=segments)
            if deepstack and index in self._vision.deepstack_visual_indexes:
                kept[index] = hidden_PD
        return hidden_PD, *(kept[index] for index in sorted(kept))

    def _run_text(
        self, batch: PackedBatch, plan: TapPlan, vision: VisionOutputs, merged_MD: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        """The first ``plan.depth`` layers, each over the samples that need it; the last layer's rows are normed."""
        if not plan.depth:
            return {}
        shape = TextShape.of(batch, plan)
        lengths = {running: shape.lengths[:running] for running in map(shape.running, range(shape.depth))}
        segments = {running: self._segments(own) for running, own in lengths.items()}
        inputs = (
            self._to_device(batch.ids_N),
            self._to_device(batch.positions_3N),
            self._to_device(batch.image_index_M),
            merged_MD[: len(batch.image_index_M)],
            *(rows_PD[: sum(shape.patch_counts)] for rows_PD in vision.deepstack),
        )
        work = partial(self._text_layers, shape, segments)
        frozen = not torch.is_grad_enabled() and not active_rows()
        outputs = self._graphs.run(("text", shape), work, inputs) if frozen else work(*inputs)
        return dict(zip(shape.layers, outputs, strict=True))

    def _text_layers(
        self,
        shape: TextShape,
        segments: Mapping[int, DeviceSegments],
        ids_N: torch.Tensor,
        positions_3N: torch.Tensor,
        image_index_M: torch.Tensor,
        merged_MD: torch.Tensor,
        *deepstack: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Rows after each of ``shape.layers``; ``segments`` by how many samples are still running."""
        hidden = self._text.embed_tokens(ids_N)
        hidden[image_index_M] = merged_MD
        hidden = hidden[None]
        rotary = self._text.rotary_emb(hidden, positions_3N[:, None])
        outputs: list[torch.Tensor] = []
        for index, layer in enumerate(self._text.layers[: shape.depth]):
            running = shape.running(index)
            tokens = sum(shape.lengths[:running])
            if tokens < hidden.shape[1]:
                hidden = hidden[:, :tokens]
                rotary = tuple(part[:, :tokens] for part in rotary)
                image_index_M = image_index_M[: sum(shape.image_token_counts[:running])]
            hidden = layer(hidden, position_embeddings=rotary, segments=segments[running])
            if index < len(deepstack):
                merger = self._vision.deepstack_merger_list[index]
                patches = sum(shape.patch_counts[:running])
                hidden[0, image_index_M] += self._merge(merger, deepstack[index][:patches])
            if index in shape.layers:
                outputs.append(self._text.norm(hidden)[0] if index == len(self._text.layers) - 1 else hidden[0])
        return tuple(outputs)

    def _merge(self, merger: nn.Module, patches_PD: torch.Tensor) -> torch.Tensor:
        """Image tokens of the patches; no work where every prompt is words only."""
        if len(patches_PD):
            return cast(torch.Tensor, merger(patches_PD))
        return torch.empty(0, self._text.config.hidden_size, device=self.device, dtype=self.dtype)

    def _segments(self, lengths: Sequence[int]) -> DeviceSegments:
        return DeviceSegments.of(Segments.of(lengths), device=self.device, dtype=self.dtype)

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    @torch.no_grad()
    def _make_grid_tables(self, grid: ImageGrid) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Learned positions [P, D], rotary cosines and sines [P, R] of one view: constants of a frozen base."""
        grid_13 = torch.tensor([[1, grid.rows, grid.columns]])
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid_13,
            num_grid_per_side=self._vision.num_grid_per_side,
            mode=self._vision.interpolation_mode,
            align_corners=self._vision.interpolation_align_corners,
            spatial_merge_size=grid.merge,
        )
        corners = self._vision.pos_embed(indices.to(self.device))
        positions_PD = (corners * weights.to(self.device)[:, :, None]).sum(1).to(self.dtype)
        places = get_vision_position_ids(grid_13, grid.merge).to(self.device)
        cosines, sines = self._vision.rotary_pos_emb(positions_PD, places)
        return positions_PD, cosines, sines


def _as_linear(convolution: nn.Conv3d) -> nn.Linear:
    """The patch embedding for still views: a matrix product over one frame, and row-stable as one.

    Its kernel covers a whole patch, and every frame of the patch shows the same pixels, so the frames' kernels add up.
    """
    assert convolution.bias is not None
    kernel_DCFHW = convolution.weight.detach()
    kernel_DV = kernel_DCFHW.float().sum(dim=2).flatten(1).to(kernel_DCFHW.dtype)
    kind = RowStableLinear if kernel_DV.device.type == "cpu" else nn.Linear
    linear = kind(1, 1, device="meta")
    linear.weight = nn.Parameter(kernel_DV, requires_grad=False)
    linear.bias = nn.Parameter(convolution.bias.detach(), requires_grad=False)
    return linear
