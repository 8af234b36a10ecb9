"""Reinforcement-learning algorithms and their options; an option an algorithm does not have is refused by name."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from gpu_runtime.protocol.base import Message, shown
from gpu_runtime.protocol.exploration import ValueSpec

Level = Annotated[
    Literal["token", "action", "chunk"],
    Field(description="What has a probability ratio of its own: each action value, each step or the whole chunk."),
]
Discount = Annotated[
    float,
    Field(ge=0, le=1, description="Worth of the next decision's reward beside this one's; 1: none is discounted."),
]
Positive = Annotated[float, Field(gt=0, le=1000)]


ReferenceKl = Annotated[
    float,
    Field(
        ge=0,
        le=1000,
        description="Weight of the KL to the policy that the job started from.",
        json_schema_extra=shown(label="Reference KL"),
    ),
]
Normalized = Annotated[bool, Field(description="Advantages of a batch are shifted to mean 0 and scaled to std 1.")]


class _Clipped(Message):
    """Options of every algorithm with a probability ratio."""

    clip_low: Annotated[
        float, Field(gt=0, le=1, description="A probability ratio below 1 minus this earns nothing more.")
    ] = 0.2
    clip_high: Annotated[
        float, Field(gt=0, le=10, description="A probability ratio above 1 plus this earns nothing more.")
    ] = 0.2
    dual_clip: Annotated[
        float | None,
        Field(gt=1, le=1000, description="Bounds the loss of bad actions to so many advantages (Ye et al. 2020)."),
    ] = None
    target_kl: Annotated[
        float | None,
        Field(
            gt=0,
            le=1000,
            description="The epochs of an update stop when the policy has moved further (KL estimate k3).",
            json_schema_extra=shown(label="Target KL"),
        ),
    ] = 0.03
    log_prob_level: Level = "token"
    reference_kl: ReferenceKl = 0.0


class _Critic(_Clipped):
    """Options of algorithms with a critic and generalised advantage estimation."""

    gamma: Discount = 0.97
    gae_lambda: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Advantages: 0 trusts the critic, 1 the returns (Schulman et al. 2016).",
            json_schema_extra=shown(label="GAE lambda"),
        ),
    ] = 0.95
    bootstrap: Annotated[
        Literal["standard", "always", "never"],
        Field(description="After which ends V(final observation) is added: cut off, any, none."),
    ] = "standard"
    value: Annotated[
        ValueSpec,
        Field(
            description="The critic: an MLP on pooled features and the normalised state.",
            json_schema_extra=shown(label="Critic"),
        ),
    ] = ValueSpec()
    value_coefficient: Annotated[Positive, Field(description="Weight of the critic's loss beside the policy's.")] = 1.0
    value_clip: Annotated[
        float | None, Field(gt=0, le=1000, description="A value moves at most so far from the old one in an update.")
    ] = 0.2
    huber_delta: Annotated[
        Positive, Field(description="Errors of the critic beyond it count linearly, not squared (Huber).")
    ] = 10.0
    entropy_coefficient: Annotated[float, Field(ge=0, le=100, description="Reward for staying random; 0: none.")] = 0.0
    normalize_advantages: Normalized = True


class PpoSpec(_Critic):
    """Proximal policy optimisation (Schulman et al. 2017)."""

    model_config = ConfigDict(json_schema_extra=shown(label="PPO"))

    type: Literal["ppo"]


class DecoupledPpoSpec(_Critic):
    """PPO around a recent policy; stale data are weighed by a capped importance ratio."""

    model_config = ConfigDict(json_schema_extra=shown(label="Decoupled PPO"))

    type: Literal["decoupled_ppo"]
    behaviour_weight_cap: Annotated[
        float, Field(ge=1, le=1000, description="Largest importance ratio of stale data to the recent policy.")
    ] = 2.0
    cap_action: Annotated[
        Literal["mask", "clamp"], Field(description="Data above the cap are left out, or count as if at the cap.")
    ] = "mask"
    proximal: Annotated[
        Literal["recomputed", "interpolated"],
        Field(
            description="Ratios are clipped around the recent policy: computed anew at the start of an update, or "
            "interpolated between versions, which costs nothing."
        ),
    ] = "recomputed"


class GrpoSpec(_Clipped):
    """Group-relative advantages: copies of one initial state compete (Shao et al. 2024). No critic."""

    model_config = ConfigDict(json_schema_extra=shown(label="GRPO"))

    type: Literal["grpo"]
    group_size: Annotated[
        int,
        Field(
            ge=2,
            le=256,
            description="Copies of one start that are compared; episodes of a batch are a multiple of it.",
            json_schema_extra=shown(unit="episodes"),
        ),
    ] = 8
    epsilon: Annotated[Positive, Field(description="Added to a group's std before returns are divided by it.")] = 1e-4
    min_std: Annotated[float, Field(ge=0, le=1000, description="Groups whose returns spread less teach nothing.")] = (
        1e-3
    )
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

    model_config = ConfigDict(json_schema_extra=shown(label="REINFORCE"))

    type: Literal["reinforce"]
    gamma: Discount = 1.0
    baseline: Annotated[
        Literal["none", "batch_mean", "group_mean", "leave_one_out"],
        Field(
            description="What is taken off a return: nothing, the mean of the batch, of its group, or of the others "
            "in its group."
        ),
    ] = "batch_mean"
    group_size: Annotated[int, Field(ge=1, le=256, description="Copies of one start, for group baselines.")] = 1
    normalize_advantages: Normalized = True
    log_prob_level: Level = "token"
    reference_kl: ReferenceKl = 0.0


AlgorithmSpec = Annotated[PpoSpec | DecoupledPpoSpec | GrpoSpec | ReinforceSpec, Field(discriminator="type")]


def group_size_of(algorithm: AlgorithmSpec) -> int:
    """Episodes that share an initial state; 1 where the algorithm compares none."""
    return getattr(algorithm, "group_size", 1)
