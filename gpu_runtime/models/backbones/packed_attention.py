"""Attention over packed sequences: every token sees its own segment only.

Registered with transformers under ``PACKED_ATTENTION``, so the model's own layers call it. On the CPU, and for fp32 on
CUDA, neighbouring segments of one length are one dense scaled-dot-product call; in bf16 and fp16 on CUDA the whole
axis is one variable-length kernel. Nothing here depends on the group: a segment's rows are computed over its own keys.

Shapes: N packed tokens, H query heads, K key/value heads, D head width, C segments of a run, L their length.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import AttentionInterface

from gpu_runtime.batching.collate import Segments

PACKED_ATTENTION = "joynexus_packed"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceSegments:
    """Segments, with what the variable-length kernel wants to find on the device."""

    segments: Segments
    cumulative: torch.Tensor | None  # int32 [segments + 1]; None where runs are used

    @classmethod
    def of(cls, segments: Segments, *, device: torch.device, dtype: torch.dtype) -> "DeviceSegments":
        if not has_varlen_kernel(device, dtype):
            return cls(segments=segments, cumulative=None)
        return cls(segments=segments, cumulative=torch.tensor(segments.offsets, dtype=torch.int32, device=device))


def has_varlen_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """The variable-length kernel exists for half precisions on CUDA only."""
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def packed_attention(
    module: torch.nn.Module,
    query_1HND: torch.Tensor,
    key_1KND: torch.Tensor,
    value_1KND: torch.Tensor,
    attention_mask: None,
    *,
    scaling: float,
    segments: DeviceSegments,
    **_unused: object,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface: [1, N, H, D] and no weights. Dropout never applies: the base is frozen."""
    if attention_mask is not None:
        raise ValueError("attention_mask: packed sequences are told apart by their segments, a mask has no place here")
    query_NHD, key_NKD, value_NKD = (tensor[0].transpose(0, 1) for tensor in (query_1HND, key_1KND, value_1KND))
    attend = _by_runs if segments.cumulative is None else _varlen
    return attend(query_NHD, key_NKD, value_NKD, segments, scaling, bool(module.is_causal))[None], None


def _by_runs(
    query_NHD: torch.Tensor,
    key_NKD: torch.Tensor,
    value_NKD: torch.Tensor,
    segments: DeviceSegments,
    scaling: float,
    causal: bool,
) -> torch.Tensor:
    """One dense call per run of equal segments."""
    grouped = query_NHD.shape[1] != key_NKD.shape[1]
    outputs = []
    for run in segments.segments.runs:
        rows = slice(run.start, run.start + run.count * run.length)
        query_CHLD, key_CKLD, value_CKLD = (
            tensor[rows].unflatten(0, (run.count, run.length)).transpose(1, 2)
            for tensor in (query_NHD, key_NKD, value_NKD)
        )
        output_CHLD = functional.scaled_dot_product_attention(
            query_CHLD, key_CKLD, value_CKLD, is_causal=causal, scale=scaling, enable_gqa=grouped
        )
        outputs.append(output_CHLD.transpose(1, 2).flatten(0, 1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _varlen(
    query_NHD: torch.Tensor,
    key_NKD: torch.Tensor,
    value_NKD: torch.Tensor,
    segments: DeviceSegments,
    scaling: float,
    causal: bool,
) -> torch.Tensor:
    """One variable-length call over the whole axis."""
    from torch.nn.attention.varlen import varlen_attn  # CUDA builds only

    longest = max(segments.segments.lengths)
    assert segments.cumulative is not None
    output_NHD = varlen_attn(
        query_NHD.contiguous(),
        key_NKD.contiguous(),
        value_NKD.contiguous(),
        segments.cumulative,
        segments.cumulative,
        longest,
        longest,
        scale=scaling,
        window_size=(-1, 0) if causal else (-1, -1),
        enable_gqa=query_NHD.shape[1] != key_NKD.shape[1],
    )
    assert isinstance(output_NHD, torch.Tensor)
    return output_NHD


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
