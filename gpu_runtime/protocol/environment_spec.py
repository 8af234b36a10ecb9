"""Which simulated task a job runs in, and what its rewards are made of."""

from typing import Annotated, Literal

from pydantic import Field

from gpu_runtime.protocol.base import Message, shown

CameraKey = Annotated[str, Field(min_length=1, max_length=200)]
CameraName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
MaxSteps = Annotated[
    int,
    Field(
        ge=1,
        le=100_000,
        description="Steps after which a try is cut off (truncated).",
        json_schema_extra=shown(unit="steps"),
    ),
]


class EnvironmentSpec(Message):
    """One task of a simulator. Views, image sizes and actions follow from the policy that plays it."""

    id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200,
            pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?$",
            description="For example PushCube-v1, gym_pusht/PushT-v0 or libero_spatial/0.",
            json_schema_extra=shown(label="Environment"),
        ),
    ]
    state: Annotated[
        Literal["proprioception", "privileged", "full"],
        Field(
            description="What the state vector tells; it must be what the policy was trained on.",
            json_schema_extra=shown(label="State vector"),
        ),
    ] = "proprioception"
    control_mode: Annotated[str | None, Field(max_length=100, description="Default: the task's usual one.")] = None
    max_steps: Annotated[
        MaxSteps | None,
        Field(
            description="An episode is cut off after it. Default and upper bound: the task's own. It bounds the cost.",
            json_schema_extra=shown(label="Step limit", unit="steps"),
        ),
    ] = None
    cameras: Annotated[
        dict[CameraKey, CameraName] | None,
        Field(
            max_length=64,
            description="The policy's camera key -> the task's name of the camera that shows it, for example "
            '{"observation.images.image": "agentview"}. Default: the name in the key.',
        ),
    ] = None

    @property
    def namespace(self) -> str:
        """Which simulator runs it; empty for ManiSkill's tasks, whose ids have none."""
        return self.id.rpartition("/")[0]


class RewardSpec(Message):
    """What a step pays in reinforcement learning; T is the step limit, t the step of the first success.

    Evaluation never uses it: success is the environment's own word.
    """

    dense: Annotated[
        Literal["none", "raw", "difference"],
        Field(description="The environment's reward: not used, as it is, or its change from step to step."),
    ] = "difference"
    success: Annotated[float, Field(ge=0, le=1000, description="Paid once, at the first success.")] = 1.0
    early_success: Annotated[float, Field(ge=0, le=1000, description="Times (1 - t/T), at the first success.")] = 0.0
    per_chunk: Annotated[float, Field(ge=-1000, le=0, description="Added for every decision: haste.")] = 0.0
