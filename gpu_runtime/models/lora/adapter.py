"""One tenant's low-rank updates of a resident base.

Shapes: r rank, I inputs and O outputs of a module.
"""

import math
from typing import Protocol

import torch
from torch import nn

from gpu_runtime.protocol.lora import LoraSpec
from gpu_runtime.protocol.messages import BaseModelInfo


class AdaptableBase(Protocol):
    """What an adapter needs to know of a base."""

    info: BaseModelInfo

    def lora_modules(self) -> dict[str, nn.Linear]:
        """The modules that can be adapted, by their path inside the model."""


class LoraAdapter(nn.Module):
    """A [r, I] and B [O, r] in fp32 for every target module, by the module's path. Holds nothing of the base.

    Both start at zero; ``reset_parameters`` or a file gives them values.
    """

    def __init__(self, spec: LoraSpec, backbone: AdaptableBase) -> None:
        super().__init__()
        self.spec, self.base = spec, backbone.info
        modules = {
            path: module
            for path, module in backbone.lora_modules().items()
            if path.rpartition(".")[2] in spec.target_modules
        }
        self.paths = tuple(modules)
        self.down = nn.ParameterList(_zeros(spec.rank, module.in_features, module) for module in modules.values())
        self.up = nn.ParameterList(_zeros(module.out_features, spec.rank, module) for module in modules.values())
        self._places = {path: index for index, path in enumerate(self.paths)}

    def reset_parameters(self, generator: torch.Generator) -> None:
        """PEFT's start: A uniform in +-1/sqrt(I), B zero; drawn on the CPU, so every device starts alike."""
        with torch.no_grad():
            for down_rI, up_Or in zip(self.down, self.up, strict=True):
                bound = 1 / math.sqrt(down_rI.shape[1])
                down_rI.copy_(torch.empty(down_rI.shape).uniform_(-bound, bound, generator=generator))
                up_Or.zero_()

    def pair(self, path: str) -> tuple[nn.Parameter, nn.Parameter] | None:
        """A and B of this module; None where it is no target."""
        place = self._places.get(path)
        return None if place is None else (self.down[place], self.up[place])


def _zeros(rows: int, columns: int, module: nn.Linear) -> nn.Parameter:
    return nn.Parameter(torch.zeros(rows, columns, device=module.weight.device))
