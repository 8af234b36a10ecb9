"""An environment family for fault tests: reach, until an action's first value is ``TRIGGER``; then the id's fault."""

import ctypes
import dataclasses
import os
import sys
import time

import numpy as np

from gpu_runtime.environments.base import EnvironmentKind, Proprioception, StepResult
from gpu_runtime.environments.reach import ReachEnvironment
from gpu_runtime.environments.registry import FAMILIES

FAULTY_FAMILIES = {**FAMILIES, "faulty": "tests.support.faulty_environments"}
TRIGGER = 1.0
_hoard: list[np.ndarray] = []


def make(kind: EnvironmentKind) -> "FaultyEnvironment":
    if kind.env_id == "faulty/CrashAtStart":
        ctypes.string_at(0)
    return FaultyEnvironment(kind.env_id)


class FaultyEnvironment(ReachEnvironment):
    def __init__(self, env_id: str) -> None:
        super().__init__()
        self.env_id = env_id

    def reset(self, seed: int) -> Proprioception:
        if seed == 666:
            time.sleep(3600)
        return super().reset(seed)

    def step(self, action_A: np.ndarray) -> StepResult:
        result = super().step(action_A)
        if action_A[0] != TRIGGER:
            return result
        match self.env_id.removeprefix("faulty/"):
            case "Hang":
                time.sleep(3600)
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
