"""``python -m gpu_runtime.environments.worker FD``: the child process that holds environments, one per slot.

Or, where the family can do so on the device, one environment that holds the worlds of all slots.

It answers one message at a time: ``open`` (make slots), ``reset``, ``step``. It ends when the channel is closed.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any

import numpy as np

from gpu_runtime.environments.base import Environment, EnvironmentKind, StateKind, without_cameras
from gpu_runtime.environments.errors import SimulatorError
from gpu_runtime.environments.frames import receive_blocking, to_frame
from gpu_runtime.environments.registry import start, start_vector
from gpu_runtime.environments.slot import Slot, TryRules
from gpu_runtime.environments.vector import VectorEnvironment
from gpu_runtime.environments.vector_slot import VectorSlots
from gpu_runtime.protocol.schema import DatasetSchema

_PR_SET_PDEATHSIG = 1


class Worker:
    """The slots of this process. A refusal keeps it usable; any other error is for the parent to judge."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        self._vector: tuple[VectorSlots, int] | None = None  # with the count of its worlds
        self._described: dict[str, Any] = {}
        self._calls = {"open": self._open, "reset": self._reset, "step": self._step}

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """One reply to one message, whatever happens inside the simulator."""
        try:
            return {"result": self._calls[message["call"]](message)}
        except SimulatorError as error:
            return {"refused": type(error).__name__, "detail": str(error)}
        except Exception as error:
            traceback.print_exc()
            return {"failed": "".join(traceback.format_exception_only(error)).strip()}

    def _open(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make as many slots as asked for, keeping those that are there."""
        kind, count, device = _kind(message["kind"]), message["slots"], message.get("vector_device")
        if device is not None:
            self._build_together(kind, count, device)
        while device is None and len(self._slots) < count:
            environment = start(kind, message["families"])
            self._slots.append(Slot(environment, self._describe(kind, environment)))
            self._slots[-1].warm_up()
        for slots in self._slots if self._vector is None else [self._vector[0]]:
            slots.rules = TryRules(**message["rules"])
        return self._described

    def _build_together(self, kind: EnvironmentKind, count: int, device: str) -> None:
        """A simulator builds its worlds together: for more of them it has to build all anew."""
        if self._vector is not None and self._vector[1] >= count:
            return
        if self._vector is not None:
            self._vector[0].close()
        environment = start_vector(kind, count, device)
        slots = VectorSlots(environment, self._describe(kind, environment))
        slots.warm_up()
        self._vector = slots, count

    def _describe(self, kind: EnvironmentKind, environment: Environment | VectorEnvironment) -> DatasetSchema:
        _one_thread()
        schema = environment.schema() if kind.cameras != () else without_cameras(environment.schema())
        self._described = {"schema": schema.model_dump(mode="json"), "max_steps": environment.max_steps}
        return schema

    def _reset(self, message: dict[str, Any]) -> list[Any]:
        if self._vector is not None:
            return self._vector[0].reset([(slot, seed) for slot, seed in message["seeds"]])
        return [self._slots[slot].reset(seed) for slot, seed in message["seeds"]]

    def _step(self, message: dict[str, Any]) -> list[Any]:
        actions_NCA: np.ndarray = message["actions"]
        if self._vector is not None:
            return self._vector[0].step(message["slots"], actions_NCA)
        return [
            self._slots[slot].step(actions_CA) for slot, actions_CA in zip(message["slots"], actions_NCA, strict=True)
        ]


def _kind(fields: dict[str, Any]) -> EnvironmentKind:
    cameras = fields["cameras"]
    wanted = {"cameras": None if cameras is None else tuple(cameras), "state": StateKind(fields["state"])}
    return EnvironmentKind(**(fields | wanted))


def _one_thread() -> None:
    """Tensors of one robot are tiny: more threads only fight over cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _confine() -> None:
    """No core files; what simulators print goes to standard error; whoever kills the runtime ends this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve the channel whose file descriptor is the only argument."""
    _confine()
    worker = Worker()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        while (message := receive_blocking(channel)) is not None:
            channel.sendall(to_frame(worker.answer(message)))
    os._exit(0)  # a simulator's own tidying up at exit may hang


if __name__ == "__main__":
    main()
