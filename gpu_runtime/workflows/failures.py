"""Why a workflow cannot go on, with a reason for machines."""

import re

from gpu_runtime.data.recording.checks import RecordingError
from gpu_runtime.environments.errors import EnvironmentLost, SimulatorError
from gpu_runtime.inference.errors import InferenceError
from gpu_runtime.protocol.messages import LogWritten
from gpu_runtime.scheduler.errors import SchedulerError
from gpu_runtime.training.mounted import Failure
from gpu_runtime.training.rl.errors import RlError
from gpu_runtime.workflows.ports import Teller
from gpu_runtime.workflows.reward import NoStepLimit

ENVIRONMENT_LOST = "environment_lost"
LOSSES_MAX = 3  # sessions in a row
EXPECTED = (EnvironmentLost, SimulatorError, InferenceError, SchedulerError, RlError, NoStepLimit, RecordingError)
"""Faults of one tenant's job; anything else is a defect of this program."""


def failure_from(error: Exception) -> Failure:
    """``code`` of an error that has one; else its class in words, for example ``simulator_missing``."""
    if isinstance(error, EnvironmentLost):
        return Failure(reason=ENVIRONMENT_LOST, message=str(error))
    code = getattr(error, "code", None)
    reason = code if isinstance(code, str) else re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    return Failure(reason=reason, message=str(error))


async def survive(error: EnvironmentLost, *, losses: int, tell: Teller, then: str) -> None:
    """Tell of the ``losses``-th session lost in a row and what comes ``then``. Raises ``error`` if it is the last."""
    last = losses >= LOSSES_MAX
    text = f"{error}; session {losses} of {LOSSES_MAX} lost in a row, {'the job ends' if last else then}"
    await tell(LogWritten(level="error" if last else "warning", message=text))
    if last:
        raise error
