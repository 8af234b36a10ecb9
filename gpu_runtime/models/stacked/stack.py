"""Heads of one architecture whose parameters are rows of common tensors: one forward and backward for all of them.

The rows ARE the heads' parameters: each head goes on as an ordinary module with its own optimizer, checkpoints and
acting, and nothing is copied from step to step.

Shapes: N tenants, P numbers of one ``Flat``.
"""

import copy
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gpu_runtime.models.flat import Flat, stack_wholes
from gpu_runtime.models.heads.base import Head, LossParts
from gpu_runtime.models.stacked.layers import Sink, StackedLayerNorm, StackedLinear


class HeadStack:
    """Takes heads over in this order. The heads must be of one architecture, precision and device."""

    def __init__(self, heads: Sequence[Head], flats: Sequence[Sequence[Flat]]) -> None:
        """``flats``: where each head's parameters lie, by tenant; all of them, and no others."""
        self._heads = [weakref.ref(head) for head in heads]
        self._flats = list(zip(*flats, strict=True))  # by group: those of all tenants
        self._wholes = [stack_wholes(group) for group in self._flats]  # [N, P] each
        self.joined = _skeleton(heads)
        self._gradients = [torch.zeros_like(whole_NP) for whole_NP in self._wholes]
        self._places: dict[str, Tensor] = {}  # of each parameter's gradients in them, [N, ...]
        for group, gradient_NP in zip(self._flats, self._gradients, strict=True):
            self._places |= group[0].named(gradient_NP)
        modules = dict(self.joined.named_modules())
        self._linears = {path: module for path, module in modules.items() if isinstance(module, StackedLinear)}
        for path, layer in self._linears.items():
            layer.sink = Sink(weight_NOI=self._places[f"{path}.weight"], bias_NO=self._places.get(f"{path}.bias"))
        self._others = {
            name: parameter
            for name, parameter in self.joined.named_parameters()
            if name.rpartition(".")[0] not in self._linears
        }

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
        """Every head gets the gradients of its own loss; they stand in the stack's room until its next backward."""
        for layer in self._linears.values():
            layer.sink.written = False
        torch.autograd.backward([loss.total for loss in losses])
        for layer in self._linears.values():
            layer.sink.close()
        for name, parameter in self._others.items():
            if parameter.grad is None:
                self._places[name].zero_()
            else:
                self._places[name].copy_(parameter.grad)
                parameter.grad = None
        for group, gradient_NP in zip(self._flats, self._gradients, strict=True):
            for flat, gradient_P in zip(group, gradient_NP.unbind(), strict=True):
                flat.whole.grad = gradient_P

    def release(self, keep: Sequence[Head] = ()) -> None:
        """Give every head but ``keep`` tensors of its own again, so that the common ones can go."""
        for index, head in enumerate(self._heads):
            if self._lives_here(index) and all(head() is not other for other in keep):
                for group in self._flats:
                    group[index].move(group[index].whole.detach().clone())

    def _lives_here(self, index: int) -> bool:
        wholes = zip(self._flats, self._wholes, strict=True)
        return all(group[index].lives_in(whole_NP[index]) for group, whole_NP in wholes)


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
    """One parameter of all, [N, ...], a view of the common tensor it lies in; None where there is none."""
    found: list[Tensor | None] = [getattr(module, name) for module in modules]
    if found[0] is None:
        return None
    rows = [row.detach() for row in found if row is not None]
    pitch = (rows[1].data_ptr() - rows[0].data_ptr()) // rows[0].element_size()
    return rows[0].as_strided((len(rows), *rows[0].shape), (pitch, *rows[0].stride()))
