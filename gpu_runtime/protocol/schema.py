"""What a dataset's samples look like, and its statistics: both immutable and hashed."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from gpu_runtime.protocol.base import Message, fingerprint


class ActionRepresentation(StrEnum):
    """How an action vector moves the robot."""

    DELTA_EE_SCALED = "delta_ee_scaled"  # end-effector change in controller units, usually [-1, 1]
    DELTA_EE_METRIC = "delta_ee_metric"  # end-effector change in metres and radians
    ABSOLUTE_EE = "absolute_ee"  # end-effector pose
    DELTA_JOINT = "delta_joint"  # joint change
    ABSOLUTE_JOINT = "absolute_joint"  # joint targets
    ABSOLUTE_POINT = "absolute_point"  # a planar target point (PushT)
    UNDECLARED = "undeclared"  # the importer was not told: fine for SFT, refused by environments


class GripperConvention(StrEnum):
    """Which sign opens the gripper."""

    OPEN_POSITIVE = "open_positive"
    CLOSE_POSITIVE = "close_positive"


class Gripper(Message):
    """The gripper's place in the action vector and its sign."""

    index: Annotated[int, Field(ge=0)]
    convention: GripperConvention


class Camera(Message):
    """One RGB view as stored: height and width in pixels, rotation that turns it upright."""

    key: Annotated[str, Field(min_length=1, max_length=200)]
    height: Annotated[int, Field(gt=0)]
    width: Annotated[int, Field(gt=0)]
    rotation_deg: Annotated[int, Field(ge=0, lt=360, multiple_of=90)] = 0


class VectorFeature(Message):
    """A state or action vector: dataset column and one name per dimension."""

    key: Annotated[str, Field(min_length=1, max_length=200)]
    names: tuple[str, ...]

    @property
    def dim(self) -> int:
        return len(self.names)


class DatasetSchema(Message):
    """Everything that must match between a dataset, a policy and an environment."""

    cameras: tuple[Camera, ...]
    state: VectorFeature | None
    action: VectorFeature
    representation: ActionRepresentation = ActionRepresentation.UNDECLARED
    gripper: Gripper | None = None
    control_hz: Annotated[float, Field(gt=0)]
    robot_type: str = "unknown"

    @model_validator(mode="after")
    def _gripper_is_inside_the_action(self) -> "DatasetSchema":
        if self.gripper is not None and self.gripper.index >= self.action.dim:
            raise ValueError(
                f"gripper.index {self.gripper.index} is outside the action of {self.action.dim} dimensions"
            )
        return self

    @property
    def signature(self) -> str:
        """Deterministic SHA-256 of the schema; equal schemas have equal signatures."""
        return fingerprint(self.model_dump(mode="json"))


Rotation = Annotated[int, Field(ge=0, lt=360, multiple_of=90)]


DimensionNames = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(min_length=1, max_length=4096)
]


class DatasetPreset(StrEnum):
    """Benchmarks whose conventions need not be declared one by one."""

    CALVIN = "calvin"  # 7 relative actions in [-1, 1], 15 numbers of robot_obs, rgb_static and rgb_gripper
    LIBERO = (
        "libero"  # 7 relative actions in [-1, 1] at 20 Hz, 8 numbers of state, two cameras; not the gripper's sign
    )


class Declared(Message):
    """What a recording's info.json cannot say. Comes with the import, else from its own meta/joynexus.json.

    ``rotations`` turns a camera's stored frames upright, counter-clockwise degrees; ``cameras`` orders or narrows
    the views; ``state``/``action`` name the columns, ``state_names``/``action_names`` their dimensions;
    ``control_hz`` where it differs from the recording's fps. ``preset`` sets what is not declared otherwise.
    """

    preset: DatasetPreset | None = None

    representation: ActionRepresentation = ActionRepresentation.UNDECLARED
    gripper: Gripper | None = None
    rotations: dict[str, Rotation] = {}
    cameras: tuple[str, ...] | None = None
    state: str | None = None
    action: str | None = None
    state_names: DimensionNames | None = None
    action_names: DimensionNames | None = None
    control_hz: Annotated[float, Field(gt=0, le=10_000)] | None = None
    robot_type: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class VectorStatistics(Message):
    """Per-dimension statistics over every frame; ``q01``/``q99`` are exact quantiles, linear interpolation."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    min: tuple[float, ...]
    max: tuple[float, ...]
    q01: tuple[float, ...]
    q99: tuple[float, ...]


class DatasetStatistics(Message):
    """Statistics of the reference pipeline. ``hash`` identifies them in manifests and policies."""

    state: VectorStatistics | None
    action: VectorStatistics
    frames: Annotated[int, Field(gt=0)]

    @property
    def hash(self) -> str:
        return fingerprint(self.model_dump(mode="json"))


class DatasetSummary(Message):
    """What validation learns about a dataset version; stored by the control plane, bound into a submit."""

    codebase_version: str
    schema_: DatasetSchema = Field(alias="schema")
    statistics: DatasetStatistics
    fingerprint: str  # SHA-256 over the content of every file, in path order
    episodes: int
    frames: int
    episode_length_min: int
    episode_length_max: int
    tasks: tuple[str, ...]
    size_bytes: int

    model_config = Message.model_config | {"populate_by_name": True}


class Defect(Message):
    """One finding of validation. ``error`` refuses the dataset; ``warning`` is shown and kept."""

    severity: Annotated[str, Field(pattern="^(error|warning)$")]
    code: str  # stable, e.g. "timestamps_not_uniform"
    message: str
    file: str | None = None
    episode: int | None = None
    frame: int | None = None
    feature: str | None = None


class ValidationReport(Message):
    """The whole outcome of validating one dataset directory or archive."""

    defects: tuple[Defect, ...]
    summary: DatasetSummary | None  # None when an error made it impossible

    @property
    def ok(self) -> bool:
        return self.summary is not None and all(defect.severity != "error" for defect in self.defects)
