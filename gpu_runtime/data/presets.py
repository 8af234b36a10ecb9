"""What an importer would have to declare about the datasets of well-known benchmarks, by one name.

LIBERO's leaves two things to the importer, because its conversions differ in them: ``gripper`` (the simulator's own
recordings close with +1, others open with +1) and ``rotations`` (the simulator draws upside down, most conversions
have turned their frames by 180 degrees already). A gripper stored as 0 and 1 has to be converted to -1 and +1 first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_runtime.protocol.schema import ActionRepresentation, DatasetPreset, Declared, Gripper, GripperConvention

_AXES = "xyz"


def _axes(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{axis}" for axis in _AXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Defaults of a declaration, and the columns that such datasets usually have.

    ``cameras`` are last parts of keys (``observation.images.rgb_static``), in the order in which they are taken;
    ``action`` and ``state`` are taken before the usual columns. ``action_limit`` bounds every number of an action.
    """

    declared: Declared
    cameras: tuple[str, ...]
    action: str
    state: str
    action_limit: float

    def views(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """Its cameras among those available; all of them where there is none of its own."""
        last = {key.rpartition(".")[2]: key for key in available}
        return tuple(last[name] for name in self.cameras if name in last) or available


PRESETS: Mapping[DatasetPreset, Preset] = {
    # rel_actions: position change x 50, Euler angle change x 20, both cut off at 1; +1 opens the gripper.
    DatasetPreset.CALVIN: Preset(
        declared=Declared(
            representation=ActionRepresentation.DELTA_EE_SCALED,
            gripper=Gripper(index=6, convention=GripperConvention.OPEN_POSITIVE),
            control_hz=30.0,
            robot_type="panda",
            action_names=(*_axes("delta"), *_axes("rotation"), "gripper"),
            state_names=(
                *_axes("tool"),
                *_axes("tool_rotation"),
                "gripper_width",
                *(f"joint_{number}" for number in range(1, 8)),
                "gripper_action",
            ),
        ),
        cameras=("rgb_static", "rgb_gripper"),
        action="rel_actions",
        state="robot_obs",
        action_limit=1.0,
    ),
    # Input of the simulator's pose controller: 1 is 0.05 m or 0.5 rad. Some headers say 10 frames a second; control is
    # at 20 Hz. Names are those of the simulator.
    DatasetPreset.LIBERO: Preset(
        declared=Declared(
            representation=ActionRepresentation.DELTA_EE_SCALED,
            control_hz=20.0,
            action_names=(*_axes("delta"), *_axes("rotation"), "gripper"),
            state_names=(*_axes("tool"), *_axes("tool_rotation"), "left_finger", "right_finger"),
        ),
        cameras=("image", "wrist_image", "image2"),
        action="action",
        state="observation.state",
        action_limit=1.0,
    ),
}
