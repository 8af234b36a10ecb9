"""Datasets of LIBERO as they are published: what one word declares, what is left to the importer, and what fits."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_runtime.data.imports import validate_path
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.recorder import Recorder
from gpu_runtime.environments import libero
from gpu_runtime.environments.base import StateKind, camera_of
from gpu_runtime.environments.errors import SchemaMismatch
from gpu_runtime.environments.libero_state import state_names
from gpu_runtime.protocol.schema import (
    ActionRepresentation,
    Camera,
    DatasetSchema,
    Gripper,
    GripperConvention,
    VectorFeature,
)
from gpu_runtime.workflows.policy_fit import PolicyFit, kind_for

IMAGE, WRIST = "observation.images.image", "observation.images.wrist_image"
FPS, SIZE = 10, 32  # as the headers of some conversions say, though control is at 20 Hz
CLOSING = {"index": 6, "convention": "close_positive"}
SHOWN = {IMAGE: "agentview", WRIST: "robot0_eye_in_hand"}


def write_libero(root: Path) -> Path:
    """Two small episodes as conversions of LIBERO have them: unnamed dimensions, nothing declared."""
    schema = DatasetSchema(
        cameras=tuple(Camera(key=key, height=SIZE, width=SIZE) for key in (WRIST, IMAGE)),
        state=VectorFeature(key="observation.state", names=tuple(f"s{index}" for index in range(8))),
        action=VectorFeature(key="action", names=tuple(f"a{index}" for index in range(7))),
        control_hz=FPS,
    )
    draw = np.random.default_rng(0)
    with Recorder(root, schema, FPS) as recorder:
        for task in ("pick up the black bowl", "open the middle drawer"):
            recorder.start_episode(task)
            for _ in range(6):
                images = {key: draw.integers(0, 255, (SIZE, SIZE, 3), np.uint8) for key in (IMAGE, WRIST)}
                state_S, action_A = (draw.uniform(-1, 1, dims).astype(np.float32) for dims in (8, 7))
                recorder.add(images, state_S, action_A)
            recorder.end_episode()
    (root / "meta/joynexus.json").unlink()
    info = json.loads((root / "meta/info.json").read_text())
    for key in ("observation.state", "action"):
        info["features"][key]["names"] = None
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_libero(tmp_path_factory.mktemp("libero") / "data")


def trained_on(root: Path, declared: Mapping[str, Any]) -> Any:
    """What is compared of a policy that sees both cameras and the state."""
    schema = LeRobotDataset.open(root, declared).schema
    spec = SimpleNamespace(dataset=SimpleNamespace(image_size=SIZE))
    return SimpleNamespace(schema=schema, views=schema.cameras, state_dim=8, spec=spec)


def simulated(cameras: tuple[str, ...] | None) -> DatasetSchema:
    """The simulator's schema, by the names that it gives itself; no world is started."""
    turned = {"rotation_deg": 180}
    return DatasetSchema(
        cameras=tuple(camera_of(name, SIZE).model_copy(update=turned) for name in cameras or libero.CAMERAS),
        state=VectorFeature(key="observation.state", names=state_names(StateKind.PROPRIOCEPTION, {}, ())),
        action=VectorFeature(key="action", names=libero._ACTION),
        representation=ActionRepresentation.DELTA_EE_SCALED,
        gripper=Gripper(index=6, convention=GripperConvention.CLOSE_POSITIVE),
        control_hz=libero.CONTROL_HZ,
    )


def fitted(policy: Any) -> PolicyFit:
    kind = kind_for(policy, "libero_spatial/0", StateKind.PROPRIOCEPTION, None, SHOWN)
    assert kind.cameras == libero.CAMERAS
    return PolicyFit.of(policy, simulated(kind.cameras), kind.cameras)


def test_one_word_declares_names_representation_control_and_cameras_but_neither_gripper_nor_rotation(
    dataset: Path,
) -> None:
    report = validate_path(dataset, declared={"preset": "libero"})
    assert report.ok, report.defects
    assert report.summary is not None
    schema = report.summary.schema_
    assert [(camera.key, camera.rotation_deg) for camera in schema.cameras] == [(IMAGE, 0), (WRIST, 0)]
    assert (schema.control_hz, schema.gripper) == (20, None)
    assert schema.representation is ActionRepresentation.DELTA_EE_SCALED
    assert schema.state is not None
    assert (schema.state.names, schema.action.names) == (simulated(None).state.names, libero._ACTION)  # type: ignore[union-attr]
    turned = validate_path(dataset, declared={"preset": "libero", "rotations": {IMAGE: 180}, "gripper": CLOSING})
    assert turned.summary is not None
    assert [camera.rotation_deg for camera in turned.summary.schema_.cameras] == [180, 0]
    assert turned.summary.schema_.gripper == Gripper(index=6, convention=GripperConvention.CLOSE_POSITIVE)


@pytest.mark.parametrize(("convention", "sign"), [("close_positive", 1), ("open_positive", -1)])
def test_a_policy_of_such_a_dataset_fits_the_simulator_whatever_its_gripper(
    dataset: Path, convention: str, sign: int
) -> None:
    policy = trained_on(dataset, {"preset": "libero", "gripper": {"index": 6, "convention": convention}})
    assert fitted(policy).to_environment(np.ones(7)).tolist() == [1] * 6 + [sign]


def test_names_that_are_declared_without_the_preset_fit_as_well(dataset: Path) -> None:
    schema = simulated(None)
    assert schema.state is not None
    named = {"state_names": schema.state.names, "action_names": schema.action.names}
    declared = {"representation": "delta_ee_scaled", "control_hz": 20, "gripper": CLOSING, "cameras": [WRIST, IMAGE]}
    policy = trained_on(dataset, {**declared, **named})
    kind = kind_for(policy, "libero_spatial/0", StateKind.PROPRIOCEPTION, None, SHOWN)
    assert kind.cameras == ("robot0_eye_in_hand", "agentview"), "in the policy's order"
    PolicyFit.of(policy, simulated(kind.cameras), kind.cameras)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"state_names": [f"s{i}" for i in range(8)]}, r"state: .*'s0'.*'tool_x'.*declare state_names"),
        ({"action_names": [f"a{i}" for i in range(7)]}, r"action: .*'a0'.*'delta_x'.*declare action_names"),
        ({"representation": "undeclared"}, r"representation: .*delta_ee_scaled; it is declared when"),
        ({"gripper": None}, r"gripper.index: .*None; .* 6; declare gripper when"),
    ],
)
def test_what_is_not_declared_as_in_the_simulator_is_refused_with_the_remedy(
    dataset: Path, declared: dict[str, Any], words: str
) -> None:
    with pytest.raises(SchemaMismatch, match=words):
        fitted(trained_on(dataset, {"preset": "libero", "gripper": CLOSING, **declared}))


def test_the_command_line_takes_the_preset(dataset: Path) -> None:
    asked = [sys.executable, "-m", "gpu_runtime", "validate", str(dataset), "--declared", '{"preset": "libero"}']
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(told.stdout)["summary"]["schema"]["control_hz"] == 20
