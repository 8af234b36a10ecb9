"""How a policy explores in reinforcement learning, and the critic beside it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from gpu_runtime.protocol.base import Message, shown

LogStd = Annotated[float, Field(ge=-10, le=2)]
HiddenSizes = Annotated[
    tuple[Annotated[int, Field(ge=8, le=4096)], ...],
    Field(min_length=1, max_length=6, description="Units of each hidden layer, for example 128, 64."),
]
StochasticSteps = Annotated[
    Literal["one", "joint_mean", "joint_sum"],
    Field(
        description="one: a single denoising step of each sample is random, drawn for each sample. joint: all steps "
        "are; the log-probability is the mean (ratios stay near 1) or the sum (the true density) over them."
    ),
]


class GaussianSpec(Message):
    """Regression heads (OFT, MLP): a normal distribution around the regression, one learned log-std per action."""

    type: Literal["gaussian"] = "gaussian"
    log_std_init: Annotated[
        LogStd,
        Field(
            description="Logarithm of the std it begins with, in normalised actions: -1 is 0.37, -2.5 is 0.08.",
            json_schema_extra=shown(label="Log-std at first"),
        ),
    ] = -2.5
    log_std_min: Annotated[
        LogStd,
        Field(description="The learned log-std is never lower.", json_schema_extra=shown(label="Log-std, least")),
    ] = -5.0
    log_std_max: Annotated[
        LogStd,
        Field(description="The learned log-std is never higher.", json_schema_extra=shown(label="Log-std, most")),
    ] = 0.5

    @model_validator(mode="after")
    def _in_order(self) -> "GaussianSpec":
        if not self.log_std_min <= self.log_std_init <= self.log_std_max:
            bounds = f"[{self.log_std_min}, {self.log_std_max}]"
            raise ValueError(f"log_std_init {self.log_std_init} must lie within {bounds}")
        return self


class FlowSdeSpec(Message):
    """Flow heads (GR00T): the ODE's steps become steps of the SDE with the same marginals."""

    model_config = ConfigDict(json_schema_extra=shown(label="Flow SDE"))

    type: Literal["flow_sde"] = "flow_sde"
    noise_level: Annotated[
        float, Field(ge=0, le=1, description="Size of the SDE's noise; 0: the ODE itself, no exploration.")
    ] = 0.5
    steps: StochasticSteps = "one"


class FlowNoiseSpec(Message):
    """Flow heads (GR00T): ODE steps plus normal noise whose std a small network learns."""

    type: Literal["flow_noise"] = "flow_noise"
    std_min: Annotated[
        float, Field(gt=0, le=1, description="Least std of the noise, in normalised actions; below the most.")
    ] = 0.08
    std_max: Annotated[float, Field(gt=0, le=1, description="Most std of the noise, in normalised actions.")] = 0.16
    hidden: HiddenSizes = (128, 64)
    steps: StochasticSteps = "one"

    @model_validator(mode="after")
    def _in_order(self) -> "FlowNoiseSpec":
        if self.std_min >= self.std_max:
            raise ValueError(f"std_min {self.std_min} must be below std_max {self.std_max}")
        return self


ExplorationSpec = Annotated[GaussianSpec | FlowSdeSpec | FlowNoiseSpec, Field(discriminator="type")]


class ValueSpec(Message):
    """The critic: an MLP on the pooled prefix features and the normalised state."""

    hidden: HiddenSizes = (512, 256, 128)
    lr: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="The critic's own step size.",
            json_schema_extra=shown(label="Critic's learning rate"),
        ),
    ] = 1e-4
    standardize: Annotated[bool, Field(description="z-score the pooled features on your own frames.")] = True
    per_step: Annotated[
        bool, Field(description="One value per executed step instead of one per chunk; for rewards of single steps.")
    ] = False
    episode_progress: Annotated[
        bool, Field(description="Also tell the critic which share of the episode's step limit has passed.")
    ] = False


class ActorCriticSpec(Message):
    """What reinforcement learning adds to a policy that was trained by imitation."""

    exploration: ExplorationSpec
    executed_steps: Annotated[int, Field(ge=1, le=64, description="Actions executed of each chunk (C <= horizon).")]
    unexplored: Annotated[
        tuple[str, ...], Field(description="Action dimensions that are never random, by name, e.g. the gripper.")
    ] = ()
    value: Annotated[ValueSpec | None, Field(description="None: no critic (GRPO).")] = None
    reference: Annotated[bool, Field(description="Keep a frozen copy of the start for a KL penalty.")] = False
