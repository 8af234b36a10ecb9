"""What a policy does on a few frames of one episode under known noise: the yardstick of every reload.

Shapes: N frames, H horizon, A action dims.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.policy import Policy

PROBE_FRAMES = 16
PROBE_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """Actions in real units, float32 [N, H, A]."""

    episode: int
    frames: tuple[int, ...]
    noise_seed: int
    actions_NHA: np.ndarray


def probe_frames(length: int, count: int = PROBE_FRAMES) -> tuple[int, ...]:
    """Up to ``count`` frames spread evenly over an episode of ``length`` frames, first and last included."""
    return tuple(sorted({round(i) for i in np.linspace(0, length - 1, min(count, length))}))


def run_probe(
    policy: Policy,
    backbone: Backbone,
    source: SampleSource,
    *,
    episode: int,
    frames: Sequence[int],
    seed: int = PROBE_SEED,
) -> Probe:
    """Read the frames, run the frozen forward and the policy on them as one batch."""
    batch = source.batch([FrameRef(episode=episode, frame=frame) for frame in frames])
    samples = to_features(batch, policy.query_tokens)
    features = backbone.encode(samples, [policy.taps] * len(samples))
    actions_NHA = policy.act(features, batch.state_BS, seed=seed)
    return Probe(episode=episode, frames=tuple(frames), noise_seed=seed, actions_NHA=actions_NHA)
