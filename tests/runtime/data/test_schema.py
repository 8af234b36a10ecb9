"""Inferring the schema: names in the forms of the wild, image layouts, declarations, a deterministic signature."""

from typing import Any

import pytest

from gpu_runtime.data.declared import Declared, declared_from, parse_declared
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.features import dimension_names, image_shape
from gpu_runtime.data.info import DatasetInfo, Feature
from gpu_runtime.data.schema import infer_schema
from gpu_runtime.protocol.schema import ActionRepresentation
from tests.support.lerobot_v30 import SCHEMA


def feature(key: str, dtype: str, shape: tuple[int, ...], names: Any = None) -> Feature:
    return Feature(key=key, dtype=dtype, shape=shape, names=names)


def info(*features: Feature) -> DatasetInfo:
    return DatasetInfo(
        codebase_version="v3.0",
        major=3,
        robot_type="arm",
        fps=10,
        total_episodes=1,
        total_frames=1,
        total_tasks=1,
        chunks_size=1000,
        data_path="d",
        video_path="v",
        features={item.key: item for item in features},
    )


CAMERA = feature("observation.images.front", "video", (32, 48, 3))
ACTION = feature("action", "float32", (2,), ["x", "y"])


@pytest.mark.parametrize(
    "names",
    [["x", "y"], [["x", "y"]], {"motors": ["x", "y"]}, {"arm": ["x"], "hand": ["y"]}, {"y": 1, "x": 0}],
)
def test_dimension_names_are_found_in_every_form_of_the_wild(names: Any) -> None:
    assert dimension_names(feature("action", "float32", (2,), names)) == ("x", "y")


@pytest.mark.parametrize("names", [None, ["x"], ["x", "y", "z"], 7, {"a": None}, [[[[[["x", "y"]]]]]]])
def test_dimensions_without_fitting_names_are_numbered(names: Any) -> None:
    assert dimension_names(feature("action", "float32", (2,), names)) == ("action[0]", "action[1]")


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ((32, 48, 3), None),
        ((3, 32, 48), None),
        ((32, 48, 3), ["height", "width", "channel"]),
        ((3, 32, 48), ["channels", "height", "width"]),
        ((32, 48, 3), ["height", "width", "rgb"]),  # names that say nothing: the sizes decide
    ],
)
def test_height_and_width_are_found_in_both_layouts(shape: tuple[int, ...], names: Any) -> None:
    found = image_shape(feature("view", "video", shape, names))
    assert (found.height, found.width, found.channels) == (32, 48, 3)


def test_names_decide_where_both_ends_could_be_channels() -> None:
    assert image_shape(feature("view", "video", (3, 48, 4), ["height", "width", "channels"])).height == 3
    assert image_shape(feature("view", "video", (3, 48, 4), ["channels", "height", "width"])).height == 48


@pytest.mark.parametrize("shape", [(3, 48, 3), (4, 5, 1), (32, 48, 5), (32, 48), (0, 48, 3), (32, 99999, 3)])
def test_a_shape_that_cannot_be_resolved_is_refused_with_its_numbers(shape: tuple[int, ...]) -> None:
    with pytest.raises(DatasetError) as refused:
        image_shape(feature("view", "video", shape))
    assert str(list(shape)) in str(refused.value)


def test_equal_datasets_have_equal_signatures_and_a_renamed_motor_another() -> None:
    first = infer_schema(info(CAMERA, ACTION), Declared())
    assert first.signature == infer_schema(info(CAMERA, ACTION), Declared()).signature
    renamed = feature("action", "float32", (2,), ["x", "z"])
    assert first.signature != infer_schema(info(CAMERA, renamed), Declared()).signature


def test_what_nobody_declared_stays_undeclared() -> None:
    schema = infer_schema(info(CAMERA, ACTION), Declared())
    assert schema.representation is ActionRepresentation.UNDECLARED
    assert (schema.state, schema.gripper, schema.control_hz) == (None, None, 10)


def test_declared_columns_resolve_what_is_ambiguous() -> None:
    both = info(CAMERA, ACTION, feature("actions", "float32", (3,)))
    with pytest.raises(DatasetError, match="both 'action' and 'actions'"):
        infer_schema(both, Declared())
    assert infer_schema(both, Declared(action="actions")).action.dim == 3


def test_declared_cameras_are_ordered_and_narrowed() -> None:
    wrist, side = (feature(key, "image", (8, 8, 3)) for key in ("wrist", "side"))
    schema = infer_schema(info(CAMERA, wrist, side, ACTION), Declared(cameras=("side", "wrist")))
    assert [camera.key for camera in schema.cameras] == ["side", "wrist"]


def test_depth_maps_are_no_rgb_views() -> None:
    depth = Feature(key="depth", dtype="video", shape=(32, 48, 1), names=None, is_depth_map=True)
    assert [camera.key for camera in infer_schema(info(CAMERA, depth, ACTION), Declared()).cameras] == [CAMERA.key]


def test_a_declaration_made_from_a_schema_says_all_that_info_cannot() -> None:
    declared = declared_from(SCHEMA)
    assert declared == parse_declared(declared.model_dump(mode="json"), source="test")
    assert (declared.gripper, declared.control_hz) == (SCHEMA.gripper, 20)


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ({"rotations": {"front": 45}}, "rotations.front"),
        ({"representation": "sideways"}, "representation"),
        ({"gripper": {"index": -1, "convention": "open_positive"}}, "gripper.index"),
        ({"hz": 3}, "hz"),
    ],
)
def test_a_wrong_declaration_names_its_field_and_value(raw: dict[str, Any], names: str) -> None:
    with pytest.raises(DatasetError, match=names):
        parse_declared(raw, source="declared")
