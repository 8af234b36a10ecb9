"""A policy's conventions against an environment's: what is converted, and what is refused by name."""

from typing import Any

import numpy as np
import pytest

from gpu_runtime.environments.adapters import adapter_between
from gpu_runtime.environments.errors import SchemaMismatch
from gpu_runtime.protocol.schema import (
    ActionRepresentation,
    Camera,
    DatasetSchema,
    Gripper,
    GripperConvention,
    VectorFeature,
)


def schema(**changes: Any) -> DatasetSchema:
    values: dict[str, Any] = {
        "cameras": (Camera(key="observation.images.base", height=64, width=64),),
        "state": VectorFeature(key="observation.state", names=("x", "y")),
        "action": VectorFeature(key="action", names=("delta_x", "delta_y", "gripper")),
        "representation": ActionRepresentation.DELTA_EE_SCALED,
        "gripper": Gripper(index=2, convention=GripperConvention.OPEN_POSITIVE),
        "control_hz": 20.0,
    }
    return DatasetSchema(**(values | changes))


def test_equal_conventions_change_no_action() -> None:
    actions = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    assert np.array_equal(adapter_between(schema(), schema())(actions), actions)


def test_the_other_gripper_convention_turns_the_grippers_sign_only() -> None:
    closing = schema(gripper=Gripper(index=2, convention=GripperConvention.CLOSE_POSITIVE))
    for policy, environment in ((closing, schema()), (schema(), closing)):
        adapted = adapter_between(policy, environment)(np.array([[0.1, -0.2, 1.0]]))
        np.testing.assert_allclose(adapted, [[0.1, -0.2, -1.0]], rtol=1e-6)
        assert adapted.dtype == np.float32


def test_a_policy_may_see_fewer_cameras_of_another_size_than_the_environment_shows() -> None:
    hand = Camera(key="observation.images.hand", height=32, width=32)
    rich = schema(cameras=(*schema().cameras, hand))
    adapter_between(schema(), rich)
    adapter_between(schema(cameras=()), rich)
    adapter_between(schema(cameras=(Camera(key=hand.key, height=128, width=128),)), rich)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cameras": (Camera(key="observation.images.hand", height=64, width=64),)}, r"images\.hand; .*shows: .*base"),
        ({"state": None}, r"state: the policy's is None; the environment allows \('x', 'y'\)"),
        ({"state": VectorFeature(key="observation.state", names=("y", "x"))}, r"state: .*\('y', 'x'\)"),
        ({"action": VectorFeature(key="action", names=("delta_y", "delta_x", "gripper"))}, "action: "),
        ({"representation": ActionRepresentation.UNDECLARED}, "do not declare it; allowed: delta_ee_scaled"),
        ({"representation": ActionRepresentation.DELTA_EE_METRIC}, "delta_ee_metric.*allows 'delta_ee_scaled'"),
        ({"control_hz": 10.0}, r"control_hz: the policy's is 10\.0; the environment allows 20\.0"),
        ({"gripper": None}, r"gripper\.index: the policy's is None; the environment allows 2"),
    ],
)
def test_what_does_not_fit_is_refused_by_field_and_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaMismatch, match=words):
        adapter_between(schema(**changes), schema())
