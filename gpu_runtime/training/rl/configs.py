"""From what a tenant asked for to the options of the pure functions. Raises OptionRefused for what does not apply."""

from collections.abc import Mapping
from typing import Any

from gpu_runtime.protocol.algorithms import AlgorithmSpec, DecoupledPpoSpec, GrpoSpec, PpoSpec, ReinforceSpec
from gpu_runtime.training.rl.decoupled import DecoupledConfig
from gpu_runtime.training.rl.gae import GaeConfig
from gpu_runtime.training.rl.grpo import GrpoConfig
from gpu_runtime.training.rl.options import configure
from gpu_runtime.training.rl.ppo import PpoConfig
from gpu_runtime.training.rl.reference_kl import ReferenceKlConfig
from gpu_runtime.training.rl.reinforce import ReinforceConfig

_CLIP = ("clip_low", "clip_high", "dual_clip", "target_kl", "log_prob_level")
_VALUE = ("value_coefficient", "value_clip", "huber_delta", "entropy_coefficient")


def ppo_config(spec: PpoSpec | DecoupledPpoSpec) -> PpoConfig:
    """Clip, critic and entropy."""
    return configure(PpoConfig, _options(spec, *_CLIP, *_VALUE))


def decoupled_config(spec: DecoupledPpoSpec) -> DecoupledConfig:
    """The clip around the proximal policy, and the weight of stale data."""
    return configure(DecoupledConfig, _options(spec, *_CLIP, "behaviour_weight_cap", "cap_action", "proximal"))


def gae_config(spec: PpoSpec | DecoupledPpoSpec) -> GaeConfig:
    """Advantages of whole chunks: the discount acts per decision."""
    return configure(GaeConfig, _options(spec, "gamma", "gae_lambda", "bootstrap"))


def grpo_config(spec: GrpoSpec) -> GrpoConfig:
    """Clip and groups."""
    own = ("group_size", "epsilon", "min_std", "filter_low", "filter_high")
    return configure(GrpoConfig, _options(spec, *_CLIP, *own))


def reinforce_config(spec: ReinforceSpec) -> ReinforceConfig:
    """Returns to go and their baseline."""
    return configure(ReinforceConfig, _options(spec, "gamma", "baseline", "normalize_advantages", "log_prob_level"))


def reference_config(spec: AlgorithmSpec) -> ReferenceKlConfig | None:
    """The penalty for leaving the policy the job started from; None where none is asked for."""
    if spec.reference_kl == 0:
        return None
    return configure(ReferenceKlConfig, {"coefficient": spec.reference_kl, "log_prob_level": spec.log_prob_level})


def _options(spec: AlgorithmSpec, *names: str) -> Mapping[str, Any]:
    return {name: getattr(spec, name) for name in names}
