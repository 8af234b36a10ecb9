"""Bases built from configuration: the real architecture, small, with random weights that are the same everywhere.

Weights come from raw PCG64 bits and integer sums, not from a floating-point normal sampler: a sampler's bits differ
between processors and versions, and the base's revision is a hash of its weights.
"""

import hashlib

import numpy as np
import torch
from transformers import Qwen3VLConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from gpu_runtime.models.backbones.tokenizers import ByteTokenizer

WEIGHT_STD = 0.02
"""transformers' own initialisation; measured better for frozen random features than a variance-preserving one."""

SEED = "joynexus built-in base 1"


def built_in_config(name: str) -> Qwen3VLConfig:
    """``tiny-qwen3-vl`` (2.3 M parameters) or ``small-qwen3-vl`` (24 M). Raises KeyError for another name."""
    sizes = {
        "tiny-qwen3-vl": (
            {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 6, "num_attention_heads": 4},
            {"head_dim": 32, "rope_parameters": _rope([6, 5, 5])},
            {"hidden_size": 96, "intermediate_size": 384, "depth": 4, "num_heads": 3},
            {"out_hidden_size": 128, "deepstack_visual_indexes": [1, 2]},
        ),
        "small-qwen3-vl": (
            {"hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 8, "num_attention_heads": 6},
            {"head_dim": 64, "rope_parameters": _rope([12, 10, 10])},
            {"hidden_size": 256, "intermediate_size": 1024, "depth": 6, "num_heads": 4},
            {"out_hidden_size": 384, "deepstack_visual_indexes": [1, 3]},
        ),
    }
    text, text_attention, vision, vision_outputs = sizes[name]
    control = ByteTokenizer.control
    return Qwen3VLConfig(
        text_config=text | text_attention | {"num_key_value_heads": 2, "vocab_size": ByteTokenizer.VOCABULARY},
        vision_config=vision | vision_outputs | {"num_position_embeddings": 256},
        image_token_id=control.image,
        video_token_id=ByteTokenizer.VIDEO,
        vision_start_token_id=control.vision_start,
        vision_end_token_id=control.vision_end,
    )


def _rope(sections: list[int]) -> dict[str, object]:
    """Frequencies shared out to time, rows and columns; they sum to half the head width."""
    return {"rope_type": "default", "rope_theta": 5_000_000.0, "mrope_section": sections, "mrope_interleaved": True}


def fill_weights(model: Qwen3VLModel) -> None:
    """Norm scales 1, biases 0, everything else random with ``WEIGHT_STD``; no random state of the process is used."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.from_numpy(_random_weights(name, tuple(parameter.shape))))
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)


def _random_weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Sums of four uniform 16-bit integers (bell-shaped, within 3.5 deviations), scaled to ``WEIGHT_STD``."""
    seed = int.from_bytes(hashlib.sha256(f"{SEED}/{name}".encode()).digest()[:16], "little")
    raw = np.random.PCG64(seed).random_raw(int(np.prod(shape))).astype("<u8")
    sums = raw.view("<u2").reshape(-1, 4).sum(axis=1, dtype=np.int64)
    unit_std = np.sqrt((2.0**32 - 1) / 3)
    return ((sums - 2 * 65535) * (WEIGHT_STD / unit_std)).astype(np.float32).reshape(shape)


def weights_revision(model: Qwen3VLModel) -> str:
    """SHA-256 over names, shapes and float32 bytes of every parameter, in name order."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name}:{tuple(parameter.shape)}\n".encode())
        digest.update(parameter.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()
