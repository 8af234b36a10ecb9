"""From an environment's id to the simulator that runs it. A new simulator family is one line in ``FAMILIES``.

Here is also decided who holds many worlds in one process: families of ``VECTOR_FAMILIES``, on a CUDA device.
"""

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType

from gpu_runtime.environments.base import Environment, EnvironmentKind, StateKind
from gpu_runtime.environments.errors import SimulatorMissing, UnknownEnvironment
from gpu_runtime.environments.maniskill_tasks import may_share_a_process
from gpu_runtime.environments.vector import VectorEnvironment

# Namespace of the id ("gym_pusht/PushT-v0"; none for ManiSkill) -> module with make(kind).
FAMILIES: Mapping[str, str] = {
    "": "gpu_runtime.environments.maniskill",
    "gym_pusht": "gpu_runtime.environments.pusht",
    "gymnasium": "gpu_runtime.environments.gymnasium",
    "joynexus": "gpu_runtime.environments.reach",
    **dict.fromkeys(
        ("libero_spatial", "libero_object", "libero_goal", "libero_10", "libero_90"), "gpu_runtime.environments.libero"
    ),
}

# Namespace -> module with make_vector(kind, count, device).
VECTOR_FAMILIES: Mapping[str, str] = {
    "": "gpu_runtime.environments.maniskill_vector",
    "joynexus": "gpu_runtime.environments.reach_vector",
}


def make_environment(
    env_id: str,
    *,
    cameras: Sequence[str] | None = None,
    size: int = 64,
    state: StateKind = StateKind.PROPRIOCEPTION,
    control_mode: str | None = None,
    exact: bool = False,
) -> Environment:
    """Start one environment; see ``EnvironmentKind`` for what can be asked for, and ``start`` for what it raises."""
    wanted = None if cameras is None else tuple(cameras)
    return start(
        EnvironmentKind(env_id=env_id, cameras=wanted, size=size, state=state, control_mode=control_mode, exact=exact)
    )


def start(kind: EnvironmentKind, families: Mapping[str, str] = FAMILIES) -> Environment:
    """Start one environment. Raises UnknownEnvironment, UnknownCamera, UnknownOption, SimulatorMissing."""
    env_id = kind.env_id
    namespace = env_id.rpartition("/")[0]
    if namespace not in families:
        known = ", ".join(f"{name}/…" if name else "a ManiSkill id" for name in families)
        raise UnknownEnvironment(f"env: {env_id!r} belongs to no known simulator; allowed: {known}")
    environment: Environment = _import(families[namespace], env_id).make(kind)
    return environment


def vectorises(kind: EnvironmentKind, device: str) -> bool:
    """Whether several worlds of ``kind`` are to be one environment on ``device``, ``cpu`` or ``cuda``.

    Simulators gain by it on a GPU only; on a CPU their worlds are spread over processes.
    """
    namespace = kind.env_id.rpartition("/")[0]
    if device == "cpu" or kind.exact or namespace not in VECTOR_FAMILIES:
        return False
    return namespace != "" or may_share_a_process(kind.env_id, kind.control_mode)


def start_vector(kind: EnvironmentKind, count: int, device: str) -> VectorEnvironment:
    """Start ``count`` worlds in one environment. Raises what ``start`` raises."""
    module = VECTOR_FAMILIES[kind.env_id.rpartition("/")[0]]
    environment: VectorEnvironment = _import(module, kind.env_id).make_vector(kind, count, device)
    return environment


def _import(module: str, env_id: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SimulatorMissing(f"env: {env_id} needs the Python package {error.name!r}; install .[runtime]") from error
    except ImportError as error:  # a shared library, such as libGL.so.1
        raise SimulatorMissing(f"env: {env_id} needs a system library ({error}): deploy/system-packages.sh") from error
