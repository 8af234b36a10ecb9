"""The same code path on CUDA, in bf16: close to float32 on the CPU, and to each sample alone."""

import pytest
import torch

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from tests.support.backbones import ragged_group, taps_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA device missing: the GPU path was not run"),
]
ENTRY = BaseModelEntry(name="small-qwen3-vl", source="small-qwen3-vl")


def relative_difference(rows: torch.Tensor, expected: torch.Tensor) -> float:
    difference = rows.float().cpu() - expected.float().cpu()
    return (difference.norm() / expected.float().norm()).item()


@pytest.fixture(scope="module")
def on_cpu() -> Backbone:
    return load_backbone(ENTRY)


@pytest.mark.parametrize(("dtype", "bound"), [("bfloat16", 3e-2), ("float32", 1e-3)])
def test_cuda_features_of_a_ragged_group_are_close_to_the_cpus(on_cpu: Backbone, dtype: str, bound: float) -> None:
    base = load_backbone(ENTRY, device="cuda", dtype=dtype, max_tokens_per_forward=4096)
    group = ragged_group(seed=3, samples=12)
    taps = [taps_of(feature) for feature in group]
    for rows, expected in zip(base.encode(group, taps), on_cpu.encode(group, taps), strict=True):
        for tap in rows:
            assert rows[tap].device.type == "cuda"
            assert relative_difference(rows[tap], expected[tap]) < bound, tap


def test_on_cuda_a_samples_features_barely_depend_on_its_group() -> None:
    base = load_backbone(ENTRY, device="cuda", dtype="bfloat16", max_tokens_per_forward=4096)
    group = ragged_group(seed=5, samples=12)
    taps = [taps_of(feature) for feature in group]
    for feature, asked, rows in zip(group, taps, base.encode(group, taps), strict=True):
        own = base.encode([feature], [asked])[0]
        assert all(relative_difference(rows[tap], own[tap]) < 3e-2 for tap in asked)


def test_recorded_forwards_are_close_to_launched_ones_step_after_step() -> None:
    launched = load_backbone(ENTRY, device="cuda", dtype="bfloat16", max_tokens_per_forward=4096)
    recorded = load_backbone(ENTRY, device="cuda", dtype="bfloat16", max_tokens_per_forward=4096, cuda_graphs=8)
    group = ragged_group(seed=7, samples=6)
    taps = [taps_of(feature) for feature in group]
    for _ in range(4):
        for rows, expected in zip(recorded.encode(group, taps), launched.encode(group, taps), strict=True):
            assert all(relative_difference(rows[tap], expected[tap]) < 1e-2 for tap in expected)
    assert recorded._forward._graphs.replays > 0
