"""Flow matching in the one internal convention: time 0 is noise, time 1 is data.

Shapes: M chunks (samples x noise draws), H horizon, A action dims.
"""

import torch
from torch import Tensor

TIME_CONVENTION = "noise_at_zero"  # as manifests name it; openpi's is the reverse
BETA_ALPHA = 1.5  # Beta(1.5, 1): more training at the noisy end
NOISE_S = 0.999
TIME_BUCKETS = 1000


def sample_time(count: int, generator: torch.Generator) -> Tensor:
    """Times t = (s - min(u, s)) / s with u ~ Beta(1.5, 1), [count] in [0, 1]."""
    # Beta(a, 1) has distribution function u^a, so its inverse is a power of a uniform number
    u = torch.rand(count, generator=generator) ** (1 / BETA_ALPHA)
    return (NOISE_S - u.clamp(max=NOISE_S)) / NOISE_S


def interpolate(noise_MHA: Tensor, data_MHA: Tensor, time_M: Tensor) -> Tensor:
    """x_t = (1 - t) noise + t data."""
    time_M11 = time_M[:, None, None]
    return (1 - time_M11) * noise_MHA + time_M11 * data_MHA


def velocity(noise_MHA: Tensor, data_MHA: Tensor) -> Tensor:
    """The regression target dx/dt = data - noise."""
    return data_MHA - noise_MHA


def euler_step(x_MHA: Tensor, velocity_MHA: Tensor, steps: int) -> Tensor:
    """One of ``steps`` equal steps from noise towards data."""
    return x_MHA + velocity_MHA / steps


def bucket(time: Tensor) -> Tensor:
    """The integer time the network is told, floor(1000 t)."""
    return (time * TIME_BUCKETS).floor()


def euler_buckets(steps: int) -> list[int]:
    """Integer times of the ``steps`` Euler steps, t = i / steps."""
    return [i * TIME_BUCKETS // steps for i in range(steps)]
