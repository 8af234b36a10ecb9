"""What lets one head's code run for one tenant and for several whose parameters are stacked.

Rows of a batch that belong to one tenant are neighbours, and every tenant has equally many. Parameter-free operations
need nothing. A parameter reaches rows through ``spread`` or a layer; data whose shapes differ by tenant stay in parts.

Shapes: N tenants, R rows of all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn


class StackedLayer(nn.Module, ABC):
    """A layer of several tenants: parameters have a leading tenant axis, rows of one tenant are neighbours."""

    @abstractmethod
    def each(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Tenant n's own layer on part n, whatever its shape."""


def on_parts(layer: nn.Module, parts: Sequence[Tensor]) -> list[Tensor]:
    """The layer on data that may differ in shape by tenant; a single part holds the rows of everybody."""
    if len(parts) > 1 and isinstance(layer, StackedLayer):
        return layer.each(parts)
    return [layer(part) for part in parts]


def spread(parameter: Tensor, rows: int) -> Tensor:
    """A learned [tokens, width], or each tenant's of [N, tokens, width], for every row: [R, tokens, width]."""
    tenants_NTW = parameter if parameter.ndim == 3 else parameter[None]
    repeated = tenants_NTW[:, None].expand(-1, rows // tenants_NTW.shape[0], -1, -1)
    return repeated.flatten(0, 1)
