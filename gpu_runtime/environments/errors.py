"""Why an environment cannot be made, refuses an action, or is lost."""

from enum import StrEnum


class SimulatorError(ValueError):
    """Base of what this package refuses."""


class UnknownEnvironment(SimulatorError):
    """No simulator family has this id."""


class SimulatorMissing(SimulatorError):
    """The simulator cannot run here: a package, a Vulkan device or a downloaded asset is missing."""


class UnknownCamera(SimulatorError):
    """The environment has no camera of this name."""


class UnknownOption(SimulatorError):
    """The environment has no such kind of state, control mode or image size."""


class WrongAction(SimulatorError):
    """An action of the wrong size, or not finite."""


class SchemaMismatch(SimulatorError):
    """A policy does not fit the environment: other cameras, state, action or conventions."""


class CannotRestore(SimulatorError):
    """The environment cannot be put back into an earlier state; reset it and act again."""


class NoExpert(SimulatorError):
    """Nobody wrote a scripted controller for this environment."""


class SeatsRefused(SimulatorError):
    """More seats than the tenant, or the whole service, will ever have."""


class SessionError(SimulatorError):
    """A session was used in a way that it does not allow; nothing happened."""


class LostReason(StrEnum):
    """Why an environment process had to be given up."""

    DEADLINE = "deadline"  # a call took longer than it may: a simulator that hangs
    CRASHED = "crashed"  # the process ended by itself or by somebody's signal
    MEMORY = "memory"  # it grew beyond its bound
    MALFORMED = "malformed"  # its reply is not one: the process cannot be trusted any more
    NOT_FINITE = "not_finite"  # a reward or a state is NaN or infinite: the physics blew up
    FAILED = "failed"  # the simulator raised an error
    CANCELLED = "cancelled"  # a call was given up in its midst


class EnvironmentLost(RuntimeError):
    """A session ended because one of its processes was given up; its rollout in progress is lost with it."""

    def __init__(self, reason: LostReason, detail: str) -> None:
        super().__init__(f"environment lost ({reason.value}): {detail}")
        self.reason, self.detail = reason, detail
