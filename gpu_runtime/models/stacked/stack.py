"""Heads of one architecture whose parameters are rows of common tensors: one forward and backward for all of them.

The rows ARE the heads' parameters: each head goes on as an ordinary module with its own optimizer, checkpoints and
acting, and nothing is copied from step to step.

Shapes: N tenants.
"""

import copy
import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gpu_runtime.models.heads.base import Head, LossParts
from gpu_runtime.models.stacked.layers import ALIGNMENT_BYTES, StackedLayerNorm, StackedLinear


class HeadStack:
    """Takes heads over in this order. The heads must be of one architecture, precision and device."""

    def __init__(self, heads: Sequence[Head]) -> None:
        self._heads = [weakref.ref(head) for head in heads]
        self._own = [list(head.parameters()) for head in heads]
        self.joined = _skeleton(heads)
        self._common = list(self.joined.parameters())
        self._rows = [parameter.detach().unbind() for parameter in self._common]
        for index, own in enumerate(self._own):
            for parameter, rows in zip(own, self._rows, strict=True):
                parameter.data = rows[index]

    @property
    def orphaned(self) -> bool:
        """Whether one of the heads is gone."""
        return any(head() is None for head in self._heads)

    def holds(self, heads: Sequence[Head]) -> bool:
        """Whether these heads, in this order, still live in the common tensors: one may have been moved since."""
        if len(heads) != len(self._heads) or any(a() is not b for a, b in zip(self._heads, heads, strict=True)):
            return False
        return all(self._lives_here(index) for index in range(len(heads)))

    def losses(self, inputs: Sequence[Any]) -> list[LossParts]:
        """Each tenant's loss on its own batch, differentiable; one forward for all."""
        predicted = self.joined.predict(type(inputs[0]).join(inputs)).chunk(len(inputs))
        return [self.joined.error(own, part) for own, part in zip(predicted, inputs, strict=True)]

    def backward(self, losses: Sequence[LossParts]) -> None:
        """Every head gets the gradients of its own loss."""
        torch.autograd.backward([loss.total for loss in losses])
        for place, common in enumerate(self._common):
            if common.grad is not None:
                for own, row in zip(self._own, common.grad.unbind(), strict=True):
                    own[place].grad = row
                common.grad = None

    def release(self, keep: Sequence[Head] = ()) -> None:
        """Give every head but ``keep`` tensors of its own again, so that the common ones can go."""
        for index, head in enumerate(self._heads):
            if self._lives_here(index) and all(head() is not other for other in keep):
                for parameter in self._own[index]:
                    parameter.data = parameter.data.clone()

    def _lives_here(self, index: int) -> bool:
        rows = zip(self._own[index], self._rows, strict=True)
        return all(parameter.data_ptr() == common[index].data_ptr() for parameter, common in rows)


def _skeleton(heads: Sequence[Head]) -> Head:
    """The heads' own code on stacked parameters."""
    tensors = (*heads[0].parameters(), *heads[0].buffers())
    joined = copy.deepcopy(heads[0], {id(tensor): tensor for tensor in tensors})  # they are replaced or only read
    modules = [dict(head.named_modules()) for head in heads]
    for path, module in list(joined.named_modules()):
        _stack_children(module, [own[path] for own in modules])
    return joined


def _stack_children(module: nn.Module, own: Sequence[nn.Module]) -> None:
    """Replace layers by stacked ones, and free parameters by stacked tensors."""
    for name, child in list(module.named_children()):
        layers = [getattr(each, name) for each in own]
        if isinstance(child, nn.Linear):
            setattr(module, name, StackedLinear(_stacked(layers, "weight"), _stacked(layers, "bias")))
        elif isinstance(child, nn.LayerNorm):
            setattr(module, name, StackedLayerNorm(_stacked(layers, "weight"), _stacked(layers, "bias"), child.eps))
    for name, _ in list(module.named_parameters(recurse=False)):
        setattr(module, name, nn.Parameter(_stacked(own, name)))


def _stacked(modules: Sequence[nn.Module], name: str) -> Any:
    """One parameter of all, [N, ...], each row beginning where a tensor of its own would; None where there is none."""
    found: list[Tensor | None] = [getattr(module, name) for module in modules]
    if found[0] is None:
        return None
    rows = [row.detach() for row in found if row is not None]
    unit = ALIGNMENT_BYTES // rows[0].element_size()
    pitch = math.ceil(rows[0].numel() / unit) * unit
    stacked = rows[0].new_zeros(len(rows), pitch).as_strided((len(rows), *rows[0].shape), (pitch, *_dense(rows[0])))
    for place, row in zip(stacked, rows, strict=True):
        place.copy_(row)
    return stacked


def _dense(x: Tensor) -> tuple[int, ...]:
    return torch.empty(x.shape, device="meta").stride()
