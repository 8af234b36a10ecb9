"""Dropout and noise from the tenant's own generator, never from the process-wide one."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Draws:
    """Large random tensors during a forward, drawn where they are used; rows of one tenant are neighbours.

    One seed for each tenant, so that a tenant's numbers are the same alone and beside others, each time anew.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.generators = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]

    def kept(self, x: Tensor, probability: float) -> Tensor:
        """Dropout's factors for ``x``: 0 with this probability, else what keeps the mean."""
        factors = torch.empty(x.shape, device=x.device)
        for rows, generator in zip(factors.chunk(len(self.generators)), self.generators, strict=True):
            rows.bernoulli_(1 - probability, generator=generator)
        return factors.div_(1 - probability)


def dropout(x: Tensor, probability: float, draws: Draws | None) -> Tensor:
    """Inverted dropout; the identity when ``draws`` is None."""
    return x if draws is None or probability == 0 else x * draws.kept(x, probability)


def jitter(x: Tensor, std: float, generator: torch.Generator | None) -> Tensor:
    """Add Gaussian noise of this standard deviation; the identity when ``generator`` is None."""
    if generator is None or std == 0:
        return x
    return x + std * torch.randn(x.shape, device=x.device, generator=generator)


def normal(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Standard normal numbers drawn on the CPU, so that every device sees the same ones."""
    return torch.randn(shape, generator=generator).to(device)


def normal_each(shape: tuple[int, ...], generators: Sequence[torch.Generator], device: torch.device) -> Tensor:
    """[B, *shape]: sample b's numbers come from ``generators[b]`` alone, whoever else is in the batch."""
    return torch.stack([torch.randn(shape, generator=generator) for generator in generators]).to(device)


def integers_each(high: int, generators: Sequence[torch.Generator], device: torch.device) -> Tensor:
    """[B] integers below ``high``, each from its sample's own generator."""
    return torch.cat([torch.randint(high, (1,), generator=generator) for generator in generators]).to(device)


def generators_of(seeds: Sequence[int]) -> list[torch.Generator]:
    """One CPU generator per seed."""
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def draw_seed(generator: torch.Generator) -> int:
    """A seed for ``Draws``, by one draw of the tenant's CPU generator.

    Dropout masks are large: drawn on the CPU they would cost a transfer each. The CPU generator's state alone still
    determines everything that follows.
    """
    return int(torch.randint(2**62, (1,), generator=generator))


def on_device(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """A generator on ``device`` seeded by one draw of the tenant's CPU generator."""
    return torch.Generator(device=device).manual_seed(draw_seed(generator))
