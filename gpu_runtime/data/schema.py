"""Infer a DatasetSchema from info.json, completed by what the importer declares."""

import re

from pydantic import ValidationError

from gpu_runtime.data.declared import DECLARED_FILE, Declared
from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.features import dimension_names, image_shape
from gpu_runtime.data.info import DIMENSIONS_MAX, INFO_FILE, DatasetInfo
from gpu_runtime.data.presets import PRESETS
from gpu_runtime.protocol.schema import Camera, DatasetSchema, VectorFeature

ACTION_KEYS = ("action", "actions")
STATE_KEYS = ("observation.state", "state")
_NUMBERS = re.compile(r"(float|int|uint)\d{1,2}|bool")


def _pick(
    info: DatasetInfo, declared: str | None, preset: str | None, usual: tuple[str, ...], role: str
) -> str | None:
    """The declared column, else the preset's, else the one usual column; two usual ones are ambiguous."""
    if declared is not None:
        if declared not in info.features:
            raise DatasetError(
                "feature_missing",
                f"declared {role} {declared!r} is not a feature; there are: {', '.join(info.features)}",
                file=INFO_FILE,
                feature=declared,
            )
        return declared
    if preset in info.features:
        return preset
    found = [key for key in usual if key in info.features]
    if len(found) > 1:
        raise DatasetError(
            "feature_ambiguous",
            f"both {found[0]!r} and {found[1]!r} exist: declare which is the {role}",
            file=INFO_FILE,
        )
    return found[0] if found else None


def _vector(info: DatasetInfo, key: str, names: tuple[str, ...] | None) -> VectorFeature:
    feature = info.features[key]
    if len(feature.shape) != 1 or not 0 < feature.shape[0] <= DIMENSIONS_MAX or not _NUMBERS.fullmatch(feature.dtype):
        raise DatasetError(
            "feature_invalid",
            f"{key}: dtype {feature.dtype}, shape {list(feature.shape)}; a vector of 1 to {DIMENSIONS_MAX} numbers "
            "is expected",
            file=INFO_FILE,
            feature=key,
        )
    if names is not None and len(names) != feature.shape[0]:
        raise DatasetError(
            "declared_invalid",
            f"{key} has {feature.shape[0]} dimensions; declared or preset are {len(names)} names: {', '.join(names)}",
            file=INFO_FILE,
            feature=key,
        )
    return VectorFeature(key=key, names=names or dimension_names(feature))


def _cameras(info: DatasetInfo, declared: Declared) -> tuple[Camera, ...]:
    views = [key for key, feature in info.features.items() if feature.is_image and not feature.is_depth_map]
    usual = PRESETS[declared.preset].views(tuple(views)) if declared.preset else tuple(views)
    wanted = declared.cameras if declared.cameras is not None else usual
    unknown = [key for key in (*wanted, *declared.rotations) if key not in views]
    if unknown or len(set(wanted)) != len(wanted):
        raise DatasetError(
            "camera_missing",
            f"declared cameras {list(wanted)} and rotations {list(declared.rotations)}; there are: {views}",
            file=INFO_FILE,
            feature=unknown[0] if unknown else None,
        )
    shapes = [(key, image_shape(info.features[key])) for key in wanted]
    return tuple(
        Camera(key=key, height=shape.height, width=shape.width, rotation_deg=declared.rotations.get(key, 0))
        for key, shape in shapes
    )


def infer_schema(info: DatasetInfo, declared: Declared) -> DatasetSchema:
    """What must match between this dataset, a policy and an environment; deterministic for equal input."""
    preset = PRESETS[declared.preset] if declared.preset else None
    action = _pick(info, declared.action, preset.action if preset else None, ACTION_KEYS, "action")
    if action is None:
        raise DatasetError(
            "feature_missing",
            f"no feature {' or '.join(ACTION_KEYS)}; there are: {', '.join(info.features)}",
            file=INFO_FILE,
        )
    state = _pick(info, declared.state, preset.state if preset else None, STATE_KEYS, "state")
    cameras = _cameras(info, declared)
    if not cameras and state is None:
        raise DatasetError(
            "camera_missing",
            "the dataset has no camera (a feature of dtype video or image) and no state: nothing to act on",
            file=INFO_FILE,
        )
    try:
        return DatasetSchema(
            cameras=cameras,
            state=_vector(info, state, declared.state_names) if state is not None else None,
            action=_vector(info, action, declared.action_names),
            representation=declared.representation,
            gripper=declared.gripper,
            control_hz=declared.control_hz or info.fps,
            robot_type=declared.robot_type or info.robot_type,
        )
    except ValidationError as error:
        reason = "; ".join(item["msg"] for item in error.errors(include_url=False))
        raise DatasetError("declared_invalid", reason, file=DECLARED_FILE) from error
