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
        """Dropout's factors for ``x``: 0 with this probability (to the nearest 2^-16), else what keeps the mean.

        Four 16-bit numbers of each 64-bit draw: torch's ``bernoulli_`` takes four times as long on a CPU.
        """
        rows = x.numel() // len(self.generators)
        words = torch.empty(len(self.generators), -(-rows // 4), dtype=torch.int64, device=x.device)
        for own, generator in zip(words, self.generators, strict=True):
            own.random_(-(2**63), None, generator=generator)
        dropped = round(probability * 2**16)
        kept = torch.empty(len(words), rows, device=x.device)  # compared into floats: bools would be converted slowly
        torch.ge(words.view(torch.int16)[:, :rows], dropped - 2**15, out=kept)
        return kept.mul_(2**16 / (2**16 - dropped)).view(x.shape)


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
