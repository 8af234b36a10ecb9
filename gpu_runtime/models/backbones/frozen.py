"""Making a model frozen, and its CPU arithmetic independent of the group."""

import torch
from torch import nn
from torch.nn import functional
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig, Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

STABLE_GEMM_ROWS = 16
"""Rows per thread from which the CPU's matrix product gives a row the same bits whatever the number of rows.

Below it the library picks other kernels (a vector product for one row, others up to three rows per thread), up to
7e-5 away; measured for one and two threads with and without AVX-512."""


class FrozenQwen3VL(Qwen3VLModel):
    """Qwen3-VL without a language head, that can't be put into training mode."""

    _keys_to_ignore_on_load_unexpected = [r"lm_head\."]  # published checkpoints carry the head

    def train(self, mode: bool = True) -> "FrozenQwen3VL":
        """Always evaluation mode: ``train()`` of whatever holds the model must not change anybody's features."""
        return super().train(False)

    @property
    def text_settings(self) -> Qwen3VLTextConfig:
        """The text stack's part of the configuration."""
        assert isinstance(self.config.text_config, Qwen3VLTextConfig)
        return self.config.text_config

    @property
    def vision_settings(self) -> Qwen3VLVisionConfig:
        """The vision tower's part of the configuration."""
        assert isinstance(self.config.vision_config, Qwen3VLVisionConfig)
        return self.config.vision_config


class RowStableLinear(nn.Linear):
    """A linear layer that pads few rows with zeros, so that a lone small sample equals its rows in a big group."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows = input.shape[-2]
        missing = STABLE_GEMM_ROWS * torch.get_num_threads() - rows
        if missing <= 0:
            return super().forward(input)
        return super().forward(functional.pad(input, (0, 0, 0, missing)))[..., :rows, :]


def freeze(model: FrozenQwen3VL, *, device: torch.device, dtype: torch.dtype) -> None:
    """Evaluation mode, no gradients, on the device, parameters in ``dtype``.

    Buffers keep float32: rotary frequencies rounded to bf16 would move positions.
    """
    model.eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(device=device, dtype=dtype)
    nn.Module.to(model, device)
    if device.type == "cpu":
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = RowStableLinear
