"""What an importer declares about a dataset because info.json has no field for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import is_storable, read_json_object
from gpu_runtime.data.presets import PRESETS
from gpu_runtime.protocol.schema import DatasetPreset, DatasetSchema, Declared

DECLARED_FILE = "meta/joynexus.json"


def declared_from(schema: DatasetSchema) -> Declared:
    """The declaration that makes ``infer_schema`` return ``schema``: what a recorder writes to meta/joynexus.json."""
    return Declared(
        representation=schema.representation,
        gripper=schema.gripper,
        rotations={camera.key: camera.rotation_deg for camera in schema.cameras},
        cameras=tuple(camera.key for camera in schema.cameras),
        state=schema.state.key if schema.state else None,
        action=schema.action.key,
        control_hz=schema.control_hz,
        robot_type=schema.robot_type,
    )


def parse_declared(raw: Mapping[str, Any], *, source: str) -> Declared:
    """Check a declaration; every wrong field is named."""
    if not is_storable(raw):
        raise DatasetError("declared_invalid", f"{source}: a text holds NUL or half a surrogate pair", file=source)
    try:
        return Declared.model_validate(dict(raw))
    except ValidationError as error:
        raise _fault(error, source) from error


def _fault(error: ValidationError, source: str) -> DatasetError:
    problems = "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'declared'}: {item['msg']}, not {item['input']!r:.80}"
        for item in error.errors(include_url=False)
    )
    return DatasetError("declared_invalid", f"{source}: {problems}", file=source)


def read_declared(root: Path, overrides: Mapping[str, Any] | None) -> Declared:
    """The dataset's own declaration, field by field replaced by the importer's.

    meta/joynexus.json holds the fields of ``Declared``, or ``schema`` as a recorder writes it; ``description`` is
    for people.
    """
    own = dict(read_json_object(root, DECLARED_FILE)) if (root / DECLARED_FILE).is_file() else {}
    own.pop("description", None)
    if "schema" in own:
        own = _from_recorded_schema(own)
    parse_declared(own, source=DECLARED_FILE)
    if not overrides:
        return parse_declared({**_preset(own), **own}, source=DECLARED_FILE)
    parse_declared(overrides, source="declared")
    return parse_declared({**_preset(own), **own, **_preset(overrides), **overrides}, source="declared")


def _preset(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the named preset declares; nothing without one."""
    if not raw.get("preset"):
        return {}
    return PRESETS[DatasetPreset(raw["preset"])].declared.model_dump(mode="json", exclude_unset=True)


def _from_recorded_schema(own: dict[str, Any]) -> dict[str, Any]:
    schema = own.pop("schema")
    try:
        recorded = declared_from(DatasetSchema.model_validate(schema)).model_dump()
    except ValidationError as error:
        raise _fault(error, DECLARED_FILE) from error
    return {**recorded, **own}
