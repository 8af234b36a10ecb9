"""How MuJoCo draws on a machine without a screen: with EGL, else with OSMesa; decided here, once per process."""

import functools
import os
import subprocess
import sys

from gpu_runtime.environments.errors import SimulatorMissing

VARIABLE = "MUJOCO_GL"
BACKENDS = ("egl", "osmesa")
_PROBE_WITHIN_S = 60
_PROBE = """
import mujoco
context = mujoco.GLContext(16, 16)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
print("drawn", flush=True)
"""


@functools.cache
def choose_gl() -> str:
    """Set MUJOCO_GL to what draws here and return it; one that is set already is tried and kept.

    Each is tried in a process of its own (0.3 s), because a failed one cannot be undone. Call it before anything
    draws. Raises SimulatorMissing.
    """
    asked = os.environ.get(VARIABLE)
    failures = []
    for backend in (asked,) if asked else BACKENDS:
        failure = _failure(backend)
        if failure is None:
            os.environ[VARIABLE] = backend
            return backend
        failures.append(f"{backend}: {failure}")
    raise SimulatorMissing(
        f"{VARIABLE}: MuJoCo can draw with none of {'; '.join(failures)}. "
        f"It needs libegl1 or libosmesa6: deploy/system-packages.sh; allowed: {', '.join(BACKENDS)}"
    )


def _failure(backend: str) -> str | None:
    """Why MuJoCo cannot draw with ``backend``; None when it can."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}  # MuJoCo sets it
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=inherited | {VARIABLE: backend},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return f"no picture within {_PROBE_WITHIN_S} s"
    if "drawn" in done.stdout:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
