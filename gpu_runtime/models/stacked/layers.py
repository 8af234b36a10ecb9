"""Layers of several tenants in one call, bit for bit what each tenant's own layer computes alone on a CPU.

A batched matrix product sums in the order of a single one only where the matrices are neither small nor narrow
(measured); elsewhere the tenants' products run one after another, still inside one operation.

Shapes: N tenants, R rows of one tenant, I input and O output width.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from gpu_runtime.models.flat import ALIGNMENT_BYTES
from gpu_runtime.models.heads.tenants import StackedLayer

STABLE_ROWS = 16  # from here on batched and single products agree


class StackedLinear(StackedLayer):
    """``nn.Linear`` of N tenants."""

    def __init__(self, weight_NOI: Tensor, bias_NO: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_NOI)
        self.bias = None if bias_NO is None else nn.Parameter(bias_NO)

    def forward(self, x: Tensor) -> Tensor:
        """[N * rows, ..., I] -> [N * rows, ..., O]."""
        return _Linear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call,no-any-return]

    def each(self, parts: Sequence[Tensor]) -> list[Tensor]:
        biases = [None] * len(parts) if self.bias is None else self.bias.unbind()
        return [linear(x, w, b) for x, w, b in zip(parts, self.weight.unbind(), biases, strict=True)]


class StackedLayerNorm(StackedLayer):
    """``nn.LayerNorm`` with scale and shift of N tenants. The fused kernel takes one tenant's scale at a time."""

    def __init__(self, weight_NI: Tensor, bias_NI: Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight_NI), nn.Parameter(bias_NI)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[N * rows, ..., I] -> the same."""
        return torch.cat(self.each(x.chunk(self.weight.shape[0])))

    def each(self, parts: Sequence[Tensor]) -> list[Tensor]:
        scales, shifts = self.weight.unbind(), self.bias.unbind()
        return [layer_norm(x, w.shape, w, b, self.eps) for x, w, b in zip(parts, scales, shifts, strict=True)]


class _Linear(torch.autograd.Function):
    """x W^T + b and its gradients, by tenant. Shapes change in here, where no view is recorded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_NOI: Tensor, bias_NO: Tensor | None) -> Tensor:
        x_NRI = x.reshape(len(weight_NOI), -1, x.shape[-1])
        ctx.save_for_backward(x_NRI, weight_NOI)
        ctx.shape = x.shape
        return _affine(x_NRI, weight_NOI.transpose(1, 2), bias_NO).view(*x.shape[:-1], weight_NOI.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        x_NRI, weight_NOI = ctx.saved_tensors
        gradient_NRO = gradients[0].reshape(*x_NRI.shape[:2], -1).contiguous()
        return (
            _product(gradient_NRO, weight_NOI).view(ctx.shape) if ctx.needs_input_grad[0] else None,
            _product(gradient_NRO.transpose(1, 2), x_NRI),
            gradient_NRO.sum(dim=1) if ctx.needs_input_grad[2] else None,
        )


def _affine(x_NRI: Tensor, weight_NIO: Tensor, bias_NO: Tensor | None) -> Tensor:
    """x W + b, by tenant."""
    if bias_NO is None:
        return _product(x_NRI, weight_NIO)
    if _batched(x_NRI, weight_NIO):
        return torch.baddbmm(bias_NO[:, None], x_NRI, weight_NIO)
    rows = zip(bias_NO.unbind(), x_NRI.unbind(), weight_NIO.unbind(), strict=True)
    return torch.stack([torch.addmm(bias, _aligned(x), _aligned(weight)) for bias, x, weight in rows])


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, by tenant."""
    if _batched(a, b):
        return torch.bmm(a, b)
    return torch.stack(
        [torch.mm(_aligned(left), _aligned(right)) for left, right in zip(a.unbind(), b.unbind(), strict=True)]
    )


def _batched(a: Tensor, b: Tensor) -> bool:
    """Whether one batched product equals the single ones. On a GPU products are batched whatever the last bits."""
    if a.is_cuda:
        return True
    return min(*a.shape[1:], *b.shape[1:]) >= STABLE_ROWS and _rows_aligned(a) and _rows_aligned(b)


def _rows_aligned(x: Tensor) -> bool:
    return (x.stride(0) * x.element_size()) % ALIGNMENT_BYTES == 0 and x.data_ptr() % ALIGNMENT_BYTES == 0


def _aligned(x: Tensor) -> Tensor:
    """The same numbers where a tensor of its own would begin: products peel rows up to the next boundary."""
    return x if x.data_ptr() % ALIGNMENT_BYTES == 0 else x.clone()
