"""Base models by their catalog entry."""

from collections import Counter

import torch

from gpu_runtime.models.backbones.base import ALL_SAVINGS, Savings
from gpu_runtime.models.backbones.graphs import GraphCache
from gpu_runtime.models.backbones.loading import load_built_in, load_checkpoint
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.lora import TARGET_MODULES, TextModules
from gpu_runtime.protocol.messages import BaseModelInfo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

DEFAULT_TOKENS_PER_FORWARD = 768
"""Prompt tokens. Measured on a CPU: 500 to 1000 are equally fast; fewer pay more dispatches, more leave the caches.

Raise it on a GPU."""


def load_backbone(
    entry: BaseModelEntry,
    *,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    max_tokens_per_forward: int = DEFAULT_TOKENS_PER_FORWARD,
    vision_cache_bytes: int = 0,
    savings: Savings = ALL_SAVINGS,
    cuda_graphs: int = 0,
) -> Qwen3VLBackbone:
    """Load a base once per process; it stays resident and frozen. ``cuda_graphs``: forwards it may keep recorded.

    Raises ValueError naming the dtype, the architecture or the weights that don't fit.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r}, allowed are {sorted(DTYPES)}")
    load = load_built_in if entry.random_weights else load_checkpoint
    base = load(entry.source, device=torch.device(device), dtype=DTYPES[dtype])
    text = base.model.text_settings
    info = BaseModelInfo(
        name=entry.name,
        revision=base.revision,
        parameters=sum(parameter.numel() for parameter in base.model.parameters()),
        hidden_size=text.hidden_size,
        layers=text.num_hidden_layers,
        dtype=dtype,
        device=str(base.model.device),
        random_weights=entry.random_weights,
        lora_modules=_lora_modules(base.model.language_model.layers),
    )
    return Qwen3VLBackbone(
        model=base.model,
        tokenizer=base.tokenizer,
        processing=base.processing,
        info=info,
        max_tokens_per_forward=max_tokens_per_forward,
        vision_cache_bytes=vision_cache_bytes,
        savings=savings,
        graphs=GraphCache(cuda_graphs if base.model.device.type == "cuda" else 0),
    )


def _lora_modules(layers: torch.nn.Module) -> tuple[TextModules, ...]:
    """Modules that adapters may update, counted by name and shape."""
    found = Counter(
        (path.rpartition(".")[2], module.in_features, module.out_features)
        for path, module in layers.named_modules()
        if isinstance(module, torch.nn.Linear)
    )
    return tuple(
        TextModules(name=name, inputs=inputs, outputs=outputs, count=count)
        for name in TARGET_MODULES
        for (own, inputs, outputs), count in found.items()
        if own == name
    )
