"""Why an RL configuration or a rollout is refused."""

from typing import ClassVar


class RlError(Exception):
    """Base of every refusal below. ``code`` is stable and travels to the control plane as the job's reason."""

    code: ClassVar[str] = "rl_error"


class OptionRefused(RlError, ValueError):
    """An option does not apply to this algorithm, or its value is not allowed. ``option`` is its name."""

    code = "option_refused"

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class RolloutMismatch(RlError, ValueError):
    """A tensor of a rollout is missing or does not have the shape or dtype the others call for."""

    code = "rollout_mismatch"


class NonFiniteReward(RlError, ArithmeticError):
    """A reward of an executed step is NaN or infinite. Nothing can be learned from this rollout."""

    code = "non_finite_reward"


class FutureVersion(RlError, ValueError):
    """A chunk claims a behaviour version newer than the policy that trains on it."""

    code = "future_version"


class ForeignHandle(RlError, LookupError):
    """A feature handle that is not this tenant's for the observation it comes with."""

    code = "unknown_feature_handle"


def require_shape(name: str, found: tuple[int, ...], allowed: tuple[int, ...]) -> None:
    """Raise RolloutMismatch unless the shapes are equal."""
    if tuple(found) != tuple(allowed):
        raise RolloutMismatch(f"{name}: shape {tuple(found)}, allowed: {tuple(allowed)}")
