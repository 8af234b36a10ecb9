"""Datasets of CALVIN: its conventions by one word, at import and at validation."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.imports import validate_path
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.recorder import Recorder
from gpu_runtime.environments.adapters import adapter_between
from gpu_runtime.protocol.schema import (
    ActionRepresentation,
    Camera,
    DatasetSchema,
    Gripper,
    GripperConvention,
    ValidationReport,
    VectorFeature,
)

STATIC, HAND, TOUCH = (f"observation.images.rgb_{name}" for name in ("static", "gripper", "tactile"))
FPS = 30


def write_calvin(root: Path, *, action: str = "rel_actions", scale: float = 1.0, state_dim: int = 15) -> Path:
    """Two small episodes as conversions of CALVIN have them: numbered dimensions, nothing declared."""
    schema = DatasetSchema(
        cameras=tuple(
            Camera(key=key, height=size, width=size) for key, size in ((HAND, 16), (TOUCH, 16), (STATIC, 32))
        ),
        state=VectorFeature(key="robot_obs", names=tuple(f"s{index}" for index in range(state_dim))),
        action=VectorFeature(key=action, names=tuple(f"a{index}" for index in range(7))),
        control_hz=FPS,
    )
    draw = np.random.default_rng(0)
    with Recorder(root, schema, FPS) as recorder:
        for task in ("open the drawer", "push the red block"):
            recorder.start_episode(task)
            for _ in range(6):
                images = {
                    camera.key: draw.integers(0, 255, (camera.height, camera.width, 3), np.uint8)
                    for camera in schema.cameras
                }
                moved = draw.uniform(-1, 1, 7).astype(np.float32) * np.float32(scale)
                recorder.add(images, draw.uniform(-1, 1, state_dim).astype(np.float32), moved)
    (root / "meta/joynexus.json").unlink()
    info = json.loads((root / "meta/info.json").read_text())
    for key in ("robot_obs", action):
        info["features"][key]["names"] = None
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


def validated(root: Path, **declared: object) -> ValidationReport:
    return validate_path(root, declared=declared)


def codes(report: ValidationReport) -> set[str]:
    return {defect.code for defect in report.defects}


def test_one_word_declares_gripper_representation_names_cameras_and_columns(tmp_path: Path) -> None:
    report = validated(write_calvin(tmp_path / "calvin"), preset="calvin")
    assert report.ok
    assert report.summary is not None
    schema = report.summary.schema_
    assert [camera.key for camera in schema.cameras] == [STATIC, HAND]
    assert schema.representation is ActionRepresentation.DELTA_EE_SCALED
    assert schema.gripper == Gripper(index=6, convention=GripperConvention.OPEN_POSITIVE)
    assert (schema.action.key, schema.action.names[0], schema.action.names[6]) == ("rel_actions", "delta_x", "gripper")
    assert schema.state is not None
    assert (schema.state.key, schema.state.dim) == ("robot_obs", 15)
    assert (schema.state.names[6], schema.state.names[14]) == ("gripper_width", "gripper_action")
    assert (schema.control_hz, schema.robot_type) == (30, "panda")
    assert "dimension_names" not in codes(report)


def test_without_it_such_a_dataset_is_refused_for_its_unusual_columns(tmp_path: Path) -> None:
    report = validated(write_calvin(tmp_path / "calvin"))
    assert not report.ok
    assert codes(report) == {"feature_missing"}


def test_what_is_declared_besides_beats_the_preset(tmp_path: Path) -> None:
    root = write_calvin(tmp_path / "calvin", action="actions")
    closing = {"index": 6, "convention": "close_positive"}
    report = validated(root, preset="calvin", gripper=closing, cameras=[HAND], control_hz=15)
    assert report.ok
    assert report.summary is not None
    schema = report.summary.schema_
    assert schema.gripper is not None
    assert schema.gripper.convention is GripperConvention.CLOSE_POSITIVE
    assert [camera.key for camera in schema.cameras] == [HAND]
    assert (schema.action.key, schema.control_hz) == ("actions", 15)


def test_the_importers_preset_beats_the_datasets_own_words_which_may_name_one_too(tmp_path: Path) -> None:
    root = write_calvin(tmp_path / "calvin")
    (root / "meta/joynexus.json").write_text(json.dumps({"preset": "calvin", "robot_type": "franka"}))
    assert LeRobotDataset.open(root).schema.robot_type == "franka"
    assert LeRobotDataset.open(root, {"preset": "calvin"}).schema.robot_type == "panda"


def test_absolute_actions_are_refused(tmp_path: Path) -> None:
    report = validated(write_calvin(tmp_path / "calvin", scale=1.8), preset="calvin")
    assert not report.ok
    assert codes(report) >= {"action_range"}
    message = next(defect.message for defect in report.defects if defect.code == "action_range")
    assert "(delta_x)" in message
    assert "stay within -1 to 1" in message


def test_another_number_of_dimensions_and_another_preset_are_refused_with_what_is_expected(tmp_path: Path) -> None:
    root = write_calvin(tmp_path / "calvin", state_dim=7)
    report = validated(root, preset="calvin")
    assert codes(report) == {"declared_invalid"}
    assert "robot_obs has 7 dimensions; declared or preset are 15 names" in report.defects[0].message
    assert validated(root, preset="calvin", state_names=[f"own_{index}" for index in range(7)]).ok
    with pytest.raises(DatasetError, match=r"preset: .*'calvin'"):
        LeRobotDataset.open(root, {"preset": "calvinist"})


def test_a_calvin_policys_gripper_is_turned_where_closing_is_positive(tmp_path: Path) -> None:
    schema = LeRobotDataset.open(write_calvin(tmp_path / "calvin"), {"preset": "calvin"}).schema
    other = schema.model_copy(update={"gripper": Gripper(index=6, convention=GripperConvention.CLOSE_POSITIVE)})
    assert adapter_between(schema, other)(np.ones(7)).tolist() == [1, 1, 1, 1, 1, 1, -1]
