"""An environment family for fault tests: reach, until an action's first value is ``TRIGGER``; then the id's fault.

For policies, who never send just that value: the fault also comes in the middle of a try, as often as the file named
by the environment variable ``FAULTS_FILE`` has bytes; each fault takes one.
"""

import ctypes
import dataclasses
import os
import sys
import time
from pathlib import Path

import numpy as np

from gpu_runtime.environments.base import EnvironmentKind, Proprioception, StepResult
from gpu_runtime.environments.errors import SimulatorMissing
from gpu_runtime.environments.reach import ReachEnvironment
from gpu_runtime.environments.registry import FAMILIES

FAULTY_FAMILIES = {**FAMILIES, "faulty": "tests.support.faulty_environments"}
TRIGGER = 1.0
FAULTS_FILE = "FAULTS_FILE"
_MIDDLE_STEP = 6
_hoard: list[np.ndarray] = []


def make(kind: EnvironmentKind) -> "FaultyEnvironment":
    if kind.env_id == "faulty/CrashAtStart":
        ctypes.string_at(0)
    if kind.env_id == "faulty/Missing":
        raise SimulatorMissing("env: faulty/Missing needs a Vulkan device")
    if kind.env_id == "faulty/Fragile" and _after_a_fault().exists():
        _after_a_fault().unlink()
        ctypes.string_at(0)
    return FaultyEnvironment(kind.env_id)


def _after_a_fault() -> Path:
    """Left by ``faulty/Fragile`` when it crashes: its next start crashes, too."""
    return Path(os.environ.get(FAULTS_FILE, "none") + ".start")


class FaultyEnvironment(ReachEnvironment):
    def __init__(self, env_id: str) -> None:
        self.env_id, self._odd, self._steps = env_id, False, 0
        super().__init__()

    def reset(self, seed: int) -> Proprioception:
        if seed == 666:
            time.sleep(3600)
        self._odd = seed % 2 == 1
        return super().reset(seed)

    def succeeded(self) -> bool:
        lucky = self._odd and self.env_id == "faulty/LuckyOdd" and self._steps == 0
        easy = self._odd and self.env_id == "faulty/EasyOdd" and self._steps == _MIDDLE_STEP - 2
        return lucky or easy or super().succeeded()

    def _is_due(self) -> bool:
        path = Path(os.environ.get(FAULTS_FILE, "none"))
        if self._steps != _MIDDLE_STEP or not path.is_file() or not (left := path.read_bytes()):
            return False
        path.write_bytes(left[1:])
        return True

    def step(self, action_A: np.ndarray) -> StepResult:
        result = super().step(action_A)
        if action_A[0] != TRIGGER and not self._is_due():
            return result
        match self.env_id.removeprefix("faulty/"):
            case "Hang":
                time.sleep(3600)
            case "Fragile":
                _after_a_fault().touch()
                ctypes.string_at(0)
            case "Segfault":
                ctypes.string_at(0)
            case "Exit":
                sys.exit(7)
            case "Raise":
                raise ZeroDivisionError("the solver divided by zero")
            case "Ask":
                input("Download 3 GB? ")
            case "Leak":
                while True:
                    _hoard.append(np.ones(2**22, np.uint8))
                    time.sleep(0.01)
            case "NanReward":
                return dataclasses.replace(result, reward=float("nan"))
            case "NanState":
                return dataclasses.replace(result, observation=Proprioception(state_S=np.full(4, np.nan, np.float32)))
            case "SmallState":
                return dataclasses.replace(result, observation=Proprioception(state_S=np.zeros(3, np.float32)))
            case "Garbage":
                os.write(int(sys.argv[1]), b"\x00\x00\x00\x04\xc1\xc1\xc1\xc1")
            case "HugeFrame":
                os.write(int(sys.argv[1]), b"\xff\xff\xff\xff")
            case "Chatter":
                print("noise on standard output", flush=True)
        return result
