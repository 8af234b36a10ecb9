"""From a policy's conventions to an environment's: the one place where an action changes its meaning.

Shapes: A action dimensions; any leading dimensions.
"""

from dataclasses import dataclass

import numpy as np

from gpu_runtime.environments.errors import SchemaMismatch
from gpu_runtime.protocol.schema import ActionRepresentation, DatasetSchema, VectorFeature


@dataclass(frozen=True, slots=True)
class ActionAdapter:
    """Multiplies each action dimension by a factor: 1, or -1 where the gripper's convention is the other one."""

    factors_A: np.ndarray

    def __call__(self, actions_A: np.ndarray) -> np.ndarray:
        """Actions in the environment's convention, float32 [..., A]."""
        return (np.asarray(actions_A, np.float32) * self.factors_A).astype(np.float32)


def adapter_between(policy: DatasetSchema, environment: DatasetSchema) -> ActionAdapter:
    """How a policy trained on data of schema ``policy`` acts in ``environment``; checks all that must agree.

    Raises SchemaMismatch naming the field, both values and what is allowed.
    """
    _check_cameras(policy, environment)
    _check_names("state", policy.state, environment.state)
    _check_names("action", policy.action, environment.action)
    if policy.representation is ActionRepresentation.UNDECLARED:
        raise SchemaMismatch(
            f"representation: the policy's data do not declare it; allowed: {environment.representation.value}; "
            "it is declared when the dataset is imported"
        )
    _equal("representation", policy.representation.value, environment.representation.value)
    _equal("control_hz", policy.control_hz, environment.control_hz)
    _equal(
        "gripper.index",
        policy.gripper and policy.gripper.index,
        environment.gripper and environment.gripper.index,
        remedy=None if policy.gripper else "declare gripper when the dataset is imported",
    )
    factors_A = np.ones(environment.action.dim, np.float32)
    if policy.gripper and environment.gripper and policy.gripper.convention is not environment.gripper.convention:
        factors_A[environment.gripper.index] = -1.0
    return ActionAdapter(factors_A)


def _check_cameras(policy: DatasetSchema, environment: DatasetSchema) -> None:
    available = {camera.key for camera in environment.cameras}
    for camera in policy.cameras:
        if camera.key not in available:
            shown = ", ".join(sorted(available)) or "none"
            raise SchemaMismatch(f"cameras: the policy sees {camera.key}; the environment shows: {shown}")


def _check_names(field: str, policy: VectorFeature | None, environment: VectorFeature | None) -> None:
    """As many dimensions under other names may mean the same: only whoever imports the dataset can say so."""
    remedy = None
    if policy and environment and policy.dim == environment.dim:
        remedy = f"if they mean the same, declare {field}_names so when the dataset is imported, and train on it"
    _equal(field, policy and policy.names, environment and environment.names, remedy=remedy)


def _equal(field: str, policy: object, environment: object, *, remedy: str | None = None) -> None:
    if policy != environment:
        both = f"{field}: the policy's is {policy!r}; the environment allows {environment!r}"
        raise SchemaMismatch(both if remedy is None else f"{both}; {remedy}")
