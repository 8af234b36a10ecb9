"""Why an environment cannot be made, or refuses an action."""


class SimulatorError(ValueError):
    """Base of what this package refuses."""


class UnknownEnvironment(SimulatorError):
    """No simulator family has this id."""


class SimulatorMissing(SimulatorError):
    """The simulator cannot run here: a package, a Vulkan device or a downloaded asset is missing."""


class UnknownCamera(SimulatorError):
    """The environment has no camera of this name."""


class WrongAction(SimulatorError):
    """An action of the wrong size, or not finite."""


class NoExpert(SimulatorError):
    """Nobody wrote a scripted controller for this environment."""
