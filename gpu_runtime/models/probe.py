"""What a policy does on a few frames of one episode under known noise: the yardstick of every reload.

After reinforcement learning there is no dataset to read frames from: the observations themselves are kept.

Shapes: N frames, H horizon, A action dims.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_runtime.batching.canonicalize import to_features
from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.data.samples import FrameRef, SampleSource
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.lora.encode import encode_with
from gpu_runtime.models.observations import Observations
from gpu_runtime.models.policy import Policy

PROBE_FRAMES = 16
PROBE_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """Actions in real units, float32 [N, H, A], on frames of an episode or on ``observations``."""

    episode: int | None
    frames: tuple[int, ...]
    noise_seed: int
    actions_NHA: np.ndarray
    observations: Observations | None = None


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
    actions_NHA = _act(policy, backbone, to_features(batch, policy.query_tokens), batch.state_BS, seed)
    return Probe(episode=episode, frames=tuple(frames), noise_seed=seed, actions_NHA=actions_NHA)


def probe_observations(
    policy: Policy, backbone: Backbone, observations: Observations, *, seed: int = PROBE_SEED
) -> Probe:
    """Run the frozen forward and the policy on kept observations as one batch; there may be none."""
    actions_NHA = np.zeros((0, policy.horizon, policy.schema.action.dim), np.float32)
    if len(observations):
        samples = observations.features(policy.query_tokens)
        actions_NHA = _act(policy, backbone, samples, observations.state_NS, seed)
    return Probe(episode=None, frames=(), noise_seed=seed, actions_NHA=actions_NHA, observations=observations)


def _act(
    policy: Policy, backbone: Backbone, samples: Sequence[VLAFeature], state_NS: np.ndarray | None, seed: int
) -> np.ndarray:
    count = len(samples)
    features = encode_with(backbone, samples, [policy.taps] * count, [policy.lora] * count)
    return policy.act(features, state_NS, seed=seed)
