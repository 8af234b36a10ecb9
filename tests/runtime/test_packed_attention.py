"""Attention over packed segments, against its definition: a block-diagonal mask over the whole axis.

Shapes: N packed tokens, H query heads, K key/value heads, D head width.
"""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_runtime.batching.collate import Segments
from gpu_runtime.models.backbones import packed_attention as subject
from gpu_runtime.models.backbones.packed_attention import DeviceSegments, packed_attention

HEADS, KEY_HEADS, WIDTH, SCALING = 4, 2, 8, 0.3
CPU = torch.device("cpu")


def random_heads(tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[1, heads, N, D] queries, keys and values."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, heads, tokens, WIDTH, generator=generator) for heads in (HEADS, KEY_HEADS, KEY_HEADS))


def by_definition(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int], causal: bool
) -> torch.Tensor:
    """[1, N, H, D] in float64: softmax over the allowed keys only."""
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    allowed = owner[:, None] == owner[None, :]
    if causal:
        allowed &= torch.ones_like(allowed).tril()
    key, value = (part.double().repeat_interleave(HEADS // KEY_HEADS, dim=1) for part in (key, value))
    scores = (query.double() @ key.transpose(-1, -2)) * SCALING
    return (scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ value).transpose(1, 2)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7), causal=st.booleans(), seed=st.integers(0, 99))
def test_a_token_attends_to_its_own_segment_only(lengths: list[int], causal: bool, seed: int) -> None:
    heads = random_heads(sum(lengths), seed)
    segments = DeviceSegments.of(Segments.of(lengths), device=CPU, dtype=torch.float32)
    module = SimpleNamespace(is_causal=causal)
    output, weights = packed_attention(module, *heads, None, scaling=SCALING, segments=segments, dropout=0.9)
    assert weights is None
    expected = by_definition(*heads, lengths, causal)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_the_variable_length_kernel_is_asked_for_the_same_attention(
    monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    """The kernel itself needs CUDA; a stand-in written from its documentation checks what it is given."""

    def kernel(query, key, value, cu_q, cu_k, max_q, max_k, *, scale, window_size, enable_gqa):  # type: ignore[no-untyped-def]
        assert query.is_contiguous()
        assert key.is_contiguous()
        assert cu_q.dtype == torch.int32
        assert torch.equal(cu_q, cu_k)
        lengths = cu_q.diff().tolist()
        assert max_q == max_k == max(lengths)
        assert (scale, enable_gqa) == (SCALING, True)
        heads = [part.transpose(0, 1)[None] for part in (query, key, value)]
        return by_definition(*heads, lengths, window_size == (-1, 0))[0]

    monkeypatch.setattr(subject, "has_varlen_kernel", lambda device, dtype: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    lengths = [3, 3, 5, 1]
    heads = random_heads(sum(lengths), seed=0)
    segments = DeviceSegments.of(Segments.of(lengths), device=CPU, dtype=torch.bfloat16)
    output, _ = packed_attention(SimpleNamespace(is_causal=causal), *heads, None, scaling=SCALING, segments=segments)
    torch.testing.assert_close(output, by_definition(*heads, lengths, causal))


def test_a_mask_is_refused() -> None:
    segments = DeviceSegments.of(Segments.of([2]), device=CPU, dtype=torch.float32)
    with pytest.raises(ValueError, match="attention_mask"):
        packed_attention(
            SimpleNamespace(is_causal=True), *random_heads(2, 0), torch.ones(2, 2), scaling=1.0, segments=segments
        )


def test_the_variable_length_kernel_is_used_in_half_precision_on_cuda_only() -> None:
    cuda = torch.device("cuda")
    assert subject.has_varlen_kernel(cuda, torch.bfloat16)
    assert not subject.has_varlen_kernel(cuda, torch.float32)
    assert not subject.has_varlen_kernel(CPU, torch.bfloat16)
