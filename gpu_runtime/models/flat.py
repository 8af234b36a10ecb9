"""Parameters that are updated alike, side by side in one tensor: one norm, one clip and one AdamW for all of them.

A head has a hundred small tensors; an operation on each costs more than its arithmetic.

Shapes: P numbers of all parameters of one ``Flat`` with the gaps between them, N tenants.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGNMENT_BYTES = 64  # where torch's allocator lets every tensor begin: kernels peel rows up to the next boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    start: int
    shape: torch.Size
    gap: int  # numbers behind it up to the next boundary, always zero

    @property
    def size(self) -> int:
        return self.shape.numel()


class Flat:
    """``whole`` [P] is what an optimizer sees; the named parameters are views of it. All of one type and device."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Takes at least one parameter over; modules go on with theirs."""
        self.parameters = dict(parameters)
        self._places: dict[str, _Place] = {}
        start = 0
        for name, parameter in self.parameters.items():
            gap = -parameter.numel() % (ALIGNMENT_BYTES // parameter.element_size())
            self._places[name] = _Place(start=start, shape=parameter.shape, gap=gap)
            start += parameter.numel() + gap
        first = next(iter(self.parameters.values()))
        self.whole = nn.Parameter(torch.zeros(start, dtype=first.dtype, device=first.device))
        for name, view in self.named(self.whole.detach()):
            view.copy_(self.parameters[name].detach())
        self._point()

    def move(self, row_P: Tensor) -> None:
        """Let the parameters live in ``row_P`` from here on, with the values they have."""
        row_P.copy_(self.whole.detach())
        self.whole.data = row_P
        self._point()

    def lives_in(self, row_P: Tensor) -> bool:
        return self.whole.data_ptr() == row_P.data_ptr()

    def named(self, whole_P: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Views of a tensor [..., P] laid out like ``whole``: its gradient, a moment of AdamW, those of N tenants."""
        for name, place in self._places.items():
            yield name, whole_P[..., place.start : place.start + place.size].unflatten(-1, place.shape)

    def laid_out(self, parts: Mapping[str, Tensor]) -> Tensor:
        """``parts`` side by side as ``whole`` is, [P]; zero where there is none."""
        whole_P, pieces = self.whole.detach(), []
        for name, place in self._places.items():
            if (part := parts.get(name)) is not None:
                pieces.append(part.reshape(-1))
            else:
                pieces.append(whole_P.new_zeros(place.size))
            if place.gap:
                pieces.append(whole_P.new_zeros(place.gap))
        return torch.cat(pieces)

    def gather(self) -> None:
        """Make the parameters' gradients ``whole.grad`` and let them go. Without any nothing happens."""
        if self.whole.grad is not None:  # gathered already, or computed there
            return
        gradients = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        if gradients:
            self.whole.grad = self.laid_out(gradients)
            for parameter in self.parameters.values():
                parameter.grad = None

    def clear(self) -> None:
        """No gradients are left."""
        self.whole.grad = None
        for parameter in self.parameters.values():
            parameter.grad = None

    def _point(self) -> None:
        for name, view in self.named(self.whole.detach()):
            self.parameters[name].data = view


def stack_wholes(flats: Sequence[Flat]) -> Tensor:
    """Let flats of one layout live in the rows of one tensor, which is returned: [N, P]."""
    common_NP = torch.stack([flat.whole.detach() for flat in flats])
    for flat, row_P in zip(flats, common_NP.unbind(), strict=True):
        flat.move(row_P)
    return common_NP
