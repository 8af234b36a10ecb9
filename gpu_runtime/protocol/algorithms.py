"""Reinforcement-learning algorithms and their options; an option an algorithm does not have is refused by name."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.exploration import ValueSpec

Level = Annotated[
    Literal["token", "action", "chunk"],
    Field(description="What has a probability ratio of its own: each action value, each step or the whole chunk."),
]
Discount = Annotated[float, Field(ge=0, le=1, description="Per decision.")]
Positive = Annotated[float, Field(gt=0, le=1000)]


class _Clipped(Message):
    """Options of every algorithm with a probability ratio."""

    clip_low: Annotated[float, Field(gt=0, le=1)] = 0.2
    clip_high: Annotated[float, Field(gt=0, le=10)] = 0.2
    dual_clip: Annotated[float | None, Field(gt=1, le=1000)] = None
    target_kl: Annotated[float | None, Field(gt=0, le=1000, description="Stop the epochs above it (k3).")] = 0.03
    log_prob_level: Level = "token"
    reference_kl: Annotated[
        float, Field(ge=0, le=1000, description="Weight of the KL to the policy that the job started from.")
    ] = 0.0


class _Critic(_Clipped):
    """Options of algorithms with a critic and generalised advantage estimation."""

    gamma: Discount = 0.97
    gae_lambda: Discount = 0.95
    bootstrap: Annotated[
        Literal["standard", "always", "never"],
        Field(description="After which ends V(final observation) is added: cut off, any, none."),
    ] = "standard"
    value: ValueSpec = ValueSpec()
    value_coefficient: Positive = 1.0
    value_clip: Annotated[float | None, Field(gt=0, le=1000)] = 0.2
    huber_delta: Positive = 10.0
    entropy_coefficient: Annotated[float, Field(ge=0, le=100)] = 0.0
    normalize_advantages: bool = True


class PpoSpec(_Critic):
    """Proximal policy optimisation (Schulman et al. 2017)."""

    type: Literal["ppo"]


class DecoupledPpoSpec(_Critic):
    """PPO around a recent policy; stale data are weighed by a capped importance ratio."""

    type: Literal["decoupled_ppo"]
    behaviour_weight_cap: Annotated[float, Field(ge=1, le=1000)] = 2.0
    cap_action: Literal["mask", "clamp"] = "mask"
    proximal: Literal["recomputed", "interpolated"] = "recomputed"


class GrpoSpec(_Clipped):
    """Group-relative advantages: copies of one initial state compete (Shao et al. 2024). No critic."""

    type: Literal["grpo"]
    group_size: Annotated[int, Field(ge=2, le=256)] = 8
    epsilon: Positive = 1e-4
    min_std: Annotated[float, Field(ge=0, le=1000)] = 1e-3
    filter_low: Annotated[float | None, Field(description="Groups with a lower mean return are left out.")] = None
    filter_high: Annotated[float | None, Field(description="Groups with a higher mean return are left out.")] = None

    @model_validator(mode="after")
    def _filter_is_a_range(self) -> "GrpoSpec":
        low, high = self.filter_low, self.filter_high
        if (low is None) != (high is None):
            given, other = ("filter_low", "filter_high") if high is None else ("filter_high", "filter_low")
            raise ValueError(f"{given} {high if low is None else low}: allowed: together with {other} only")
        if low is not None and high is not None and low >= high:
            raise ValueError(f"filter_high {high}: allowed: above filter_low ({low})")
        return self


class ReinforceSpec(Message):
    """REINFORCE with a baseline: on-policy, one pass, no ratio, no critic (Williams 1992)."""

    type: Literal["reinforce"]
    gamma: Discount = 1.0
    baseline: Literal["none", "batch_mean", "group_mean", "leave_one_out"] = "batch_mean"
    group_size: Annotated[int, Field(ge=1, le=256, description="Copies of one start, for group baselines.")] = 1
    normalize_advantages: bool = True
    log_prob_level: Level = "token"
    reference_kl: Annotated[float, Field(ge=0, le=1000)] = 0.0


AlgorithmSpec = Annotated[PpoSpec | DecoupledPpoSpec | GrpoSpec | ReinforceSpec, Field(discriminator="type")]


def group_size_of(algorithm: AlgorithmSpec) -> int:
    """Episodes that share an initial state; 1 where the algorithm compares none."""
    return getattr(algorithm, "group_size", 1)
