"""Wilson's score interval: how far a success rate over few episodes can be trusted."""

import math

from gpu_runtime.protocol.base import Message

_Z_95 = 1.959963984540054  # standard normal quantile at 97.5 %


class SuccessRate(Message):
    """``successes`` of ``episodes`` and the 95 % interval of the rate; None where there is no episode to judge by."""

    successes: int
    episodes: int
    rate: float | None
    low: float | None
    high: float | None


def success_rate(successes: int, episodes: int) -> SuccessRate:
    """The rate with Wilson's interval, which stays inside [0, 1] and is never of no width. Raises ValueError."""
    if not 0 <= successes <= episodes:
        raise ValueError(f"successes: {successes}, allowed: 0 to {episodes}")
    if episodes == 0:
        return SuccessRate(successes=0, episodes=0, rate=None, low=None, high=None)
    rate, z2_per_episode = successes / episodes, _Z_95**2 / episodes
    center = rate + z2_per_episode / 2
    half = math.sqrt(z2_per_episode * (rate * (1 - rate) + z2_per_episode / 4))
    return SuccessRate(
        successes=successes,
        episodes=episodes,
        rate=rate,
        low=max(0.0, (center - half) / (1 + z2_per_episode)),
        high=min(1.0, (center + half) / (1 + z2_per_episode)),
    )
