"""Dropout and noise from the tenant's own generator, never from the process-wide one."""

from collections.abc import Sequence

import torch
from torch import Tensor


def dropout(x: Tensor, probability: float, generator: torch.Generator | None) -> Tensor:
    """Inverted dropout; the identity when ``generator`` is None. ``generator`` lives on the device of ``x``."""
    if generator is None or probability == 0:
        return x
    keep = torch.empty(x.shape, device=x.device).bernoulli_(1 - probability, generator=generator)
    return x * keep / (1 - probability)


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


def on_device(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """A generator on ``device`` seeded by one draw of the tenant's CPU generator.

    Dropout masks are large: drawn on the CPU they would cost a transfer each. The CPU generator's state alone still
    determines everything that follows.
    """
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return torch.Generator(device=device).manual_seed(seed)
