"""Layers of several tenants in one call, bit for bit what each tenant's own layer computes alone on a CPU.

A batched matrix product sums in the order of a single one only where the matrices are neither small nor narrow
(measured); elsewhere the tenants' products run one after another, still inside one operation.

Shapes: N tenants, R rows of one tenant, I input and O output width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from gpu_runtime.models.flat import ALIGNMENT_BYTES
from gpu_runtime.models.heads.tenants import StackedLayer

STABLE_ROWS = 16  # from here on batched and single products agree


@dataclass(slots=True, kw_only=True, eq=False)
class Sink:
    """Where a layer's gradients are written: views of the tenants' flat gradients, [N, O, I] and [N, O].

    Autograd would keep a copy of its own for each parameter, to be copied once more.
    """

    weight_NOI: Tensor
    bias_NO: Tensor | None
    written: bool = False

    def write(self, gradient_NRO: Sequence[Tensor] | Tensor, x_NRI: Sequence[Tensor] | Tensor) -> None:
        """The gradients of tenants' products, added to those of an earlier use of the layer in the same backward."""
        if not self.written:
            self._write(gradient_NRO, x_NRI)
        else:
            earlier = [place.clone() for place in self._all()]
            self._write(gradient_NRO, x_NRI)
            for place, before in zip(self._all(), earlier, strict=True):
                place.add_(before)
        self.written = True

    def close(self) -> None:
        """The backward is over: a layer that had no part in it has no gradient."""
        if not self.written:
            for place in self._all():
                place.zero_()

    def _all(self) -> list[Tensor]:
        return [self.weight_NOI] if self.bias_NO is None else [self.weight_NOI, self.bias_NO]

    def _write(self, gradient_NRO: Sequence[Tensor] | Tensor, x_NRI: Sequence[Tensor] | Tensor) -> None:
        if isinstance(gradient_NRO, Tensor) and isinstance(x_NRI, Tensor):
            _product(gradient_NRO.transpose(1, 2), x_NRI, out=self.weight_NOI)
            if self.bias_NO is not None:
                torch.sum(gradient_NRO, dim=1, out=self.bias_NO)
            return
        for own, gradient_RO, x_RI in zip(self.weight_NOI.unbind(), gradient_NRO, x_NRI, strict=True):
            torch.mm(gradient_RO.t(), x_RI, out=own)
        if self.bias_NO is not None:
            for own, gradient_RO in zip(self.bias_NO.unbind(), gradient_NRO, strict=True):
                torch.sum(gradient_RO, dim=0, out=own)


class StackedLinear(StackedLayer):
    """``nn.Linear`` of N tenants. Its parameters' gradients go into ``sink``, which the stack sets."""

    sink: Sink

    def __init__(self, weight_NOI: Tensor, bias_NO: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_NOI)
        self.bias = None if bias_NO is None else nn.Parameter(bias_NO)

    def forward(self, x: Tensor) -> Tensor:
        """[N * rows, ..., I] -> [N * rows, ..., O]."""
        return _Linear.apply(self, x, self.weight, self.bias)  # type: ignore[no-untyped-call,no-any-return]

    def each(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return list(_Linears.apply(self, self.weight, self.bias, *parts))  # type: ignore[no-untyped-call]


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
    def forward(ctx: Any, layer: StackedLinear, x: Tensor, weight_NOI: Tensor, bias_NO: Tensor | None) -> Tensor:
        x_NRI = x.reshape(len(weight_NOI), -1, x.shape[-1])
        ctx.save_for_backward(x_NRI, weight_NOI)
        ctx.layer, ctx.shape = layer, x.shape
        return _affine(x_NRI, weight_NOI.transpose(1, 2), bias_NO).view(*x.shape[:-1], weight_NOI.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_NRI, weight_NOI = ctx.saved_tensors
        gradient_NRO = gradients[0].reshape(*x_NRI.shape[:2], -1).contiguous()
        ctx.layer.sink.write(gradient_NRO, x_NRI)
        wanted = ctx.needs_input_grad[1]
        return None, _product(gradient_NRO, weight_NOI).view(ctx.shape) if wanted else None, None, None


class _Linears(torch.autograd.Function):
    """A product for each tenant, of as many rows as that one has; one node, as their gradients are one tensor."""

    @staticmethod
    def forward(
        ctx: Any, layer: StackedLinear, weight_NOI: Tensor, bias_NO: Tensor | None, *parts: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(weight_NOI, *parts)
        ctx.layer = layer
        biases = [None] * len(parts) if bias_NO is None else bias_NO.unbind()
        return tuple(linear(x, w, b) for x, w, b in zip(parts, weight_NOI.unbind(), biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight_NOI, *parts = ctx.saved_tensors
        flat_RO = [gradient.reshape(-1, gradient.shape[-1]) for gradient in gradients]
        ctx.layer.sink.write(flat_RO, [part.reshape(-1, part.shape[-1]) for part in parts])
        inputs = zip(flat_RO, weight_NOI, parts, ctx.needs_input_grad[3:], strict=True)
        return (
            None,
            None,
            None,
            *(torch.mm(g, w).view(part.shape) if wanted else None for g, w, part, wanted in inputs),
        )


def _affine(x_NRI: Tensor, weight_NIO: Tensor, bias_NO: Tensor | None) -> Tensor:
    """x W + b, by tenant."""
    if bias_NO is None:
        return _product(x_NRI, weight_NIO)
    if _batched(x_NRI, weight_NIO):
        return torch.baddbmm(bias_NO[:, None], x_NRI, weight_NIO)
    rows = zip(bias_NO.unbind(), _singles(x_NRI), _singles(weight_NIO), strict=True)
    return torch.stack([torch.addmm(bias, x, weight) for bias, x, weight in rows])


def _product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a @ b, by tenant."""
    if _batched(a, b):
        return torch.bmm(a, b) if out is None else torch.bmm(a, b, out=out)
    out = a.new_empty(len(a), a.shape[1], b.shape[2]) if out is None else out
    for own, left, right in zip(out.unbind(), _singles(a), _singles(b), strict=True):
        torch.mm(left, right, out=own)
    return out


def _batched(a: Tensor, b: Tensor) -> bool:
    """Whether one batched product equals the single ones. On a GPU products are batched whatever the last bits."""
    if a.is_cuda:
        return True
    return min(*a.shape[1:], *b.shape[1:]) >= STABLE_ROWS and _rows_aligned(a) and _rows_aligned(b)


def _singles(x: Tensor) -> list[Tensor]:
    """Each tenant's numbers where a tensor of its own would begin: products peel rows up to the next boundary."""
    if _rows_aligned(x):
        return list(x.unbind())
    return [row if row.data_ptr() % ALIGNMENT_BYTES == 0 else row.clone() for row in x.unbind()]


def _rows_aligned(x: Tensor) -> bool:
    return (x.stride(0) * x.element_size()) % ALIGNMENT_BYTES == 0 and x.data_ptr() % ALIGNMENT_BYTES == 0
