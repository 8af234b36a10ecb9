"""What validation learned about a version, in lines for people."""

from dataclasses import dataclass
from typing import Any

from tenants.datasets.models import DatasetVersion

FINDINGS_SHOWN = 200
_REPRESENTATIONS = {
    "delta_ee_scaled": "end-effector change, controller units",
    "delta_ee_metric": "end-effector change, m and rad",
    "absolute_ee": "end-effector pose",
    "delta_joint": "joint change",
    "absolute_joint": "joint targets",
    "absolute_point": "planar target point",
    "undeclared": "not declared; environments refuse it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One defect: ``place`` says where, as far as it is known."""

    is_error: bool
    message: str
    code: str
    place: str
    episode: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Defects of a version, errors first; ``hidden`` more are not shown."""

    rows: list[Finding]
    errors: int
    warnings: int
    hidden: int


def findings_of(version: DatasetVersion) -> Findings:
    """Empty while there is no report."""
    defects = sorted((version.report or {}).get("defects", ()), key=_order)
    errors = sum(defect["severity"] == "error" for defect in defects)
    return Findings(
        rows=[_finding(defect) for defect in defects[:FINDINGS_SHOWN]],
        errors=errors,
        warnings=len(defects) - errors,
        hidden=max(len(defects) - FINDINGS_SHOWN, 0),
    )


def schema_lines(version: DatasetVersion) -> list[tuple[str, str]]:
    """(what, value) of the schema that must match a policy's and an environment's."""
    schema = (version.summary or {})["schema"]
    lines = [
        ("Robot", schema["robot_type"]),
        ("Control", f"{schema['control_hz']:g}\u00a0Hz"),
        ("Action", f"{schema['action']['key']}, {len(schema['action']['names'])} dimensions"),
        ("Meaning", _REPRESENTATIONS.get(schema["representation"], schema["representation"])),
    ]
    if schema["state"]:
        lines.append(("State", f"{schema['state']['key']}, {len(schema['state']['names'])} dimensions"))
    else:
        lines.append(("State", "none"))
    if gripper := schema["gripper"]:
        name = schema["action"]["names"][gripper["index"]]
        lines.append(("Gripper", f"{name}, {gripper['convention'].replace('_', ' ')}"))
    return lines + [(_camera(view), _pixels(view)) for view in schema["cameras"]]


def _camera(view: dict[str, Any]) -> str:
    return "Camera " + (view["key"].removeprefix("observation.images.") or view["key"])


def _pixels(view: dict[str, Any]) -> str:
    turned = f", turned {view['rotation_deg']}°" if view["rotation_deg"] else ""
    return f"{view['width']}×{view['height']}{turned}"


def _order(defect: dict[str, Any]) -> tuple[bool, int]:
    episode = defect.get("episode")
    return defect["severity"] != "error", -1 if episode is None else episode


def _finding(defect: dict[str, Any]) -> Finding:
    known = [(name, defect.get(name)) for name in ("frame", "feature", "file")]
    return Finding(
        is_error=defect["severity"] == "error",
        message=defect["message"],
        code=defect["code"],
        place=", ".join(f"{name} {value}" for name, value in known if value is not None),
        episode=defect.get("episode"),
    )
