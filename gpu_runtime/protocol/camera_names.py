"""Which of an environment's cameras shows each view of a policy: published datasets call theirs as they like."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

IMAGE_PREFIX = "observation.images."  # of the keys that environments give their cameras, followed by the name


class CameraFault(StrEnum):
    """Why cameras are refused, for machines."""

    UNKNOWN = "unknown_camera"  # the policy has no such view
    UNNAMED = "camera_not_simulated"  # the view's key holds no name, and none is given
    REPEATED = "camera_repeated"  # one camera for two views


class CamerasRefused(ValueError):
    """Views and an environment's cameras were not matched one to one."""

    def __init__(self, code: CameraFault, message: str) -> None:
        super().__init__(message)
        self.code = code


def cameras_of(views: Sequence[str], given: Mapping[str, str] | None) -> tuple[str, ...]:
    """The environment's camera names for the policy's ``views``, in their order.

    ``given``: a view's key -> the environment's name; without it, the name in the key. Raises CamerasRefused naming
    the field, its value and what is allowed.
    """
    given = given or {}
    for key in given:
        if key not in views:
            allowed = ", ".join(views) or "none, it sees no picture"
            raise CamerasRefused(CameraFault.UNKNOWN, f"cameras: the policy sees no {key!r}; allowed: {allowed}")
    names: list[str] = []
    for key in views:
        if key not in given and not key.startswith(IMAGE_PREFIX):
            raise CamerasRefused(
                CameraFault.UNNAMED,
                f"cameras: the policy sees {key!r}, and simulated tasks offer cameras called {IMAGE_PREFIX}NAME; "
                f"allowed: the environment's name for it under {key!r}",
            )
        name = given.get(key, key.removeprefix(IMAGE_PREFIX))
        if name in names:
            other = views[names.index(name)]
            raise CamerasRefused(
                CameraFault.REPEATED, f"cameras: {name!r} is to show {other!r} and {key!r}; allowed: a camera for each"
            )
        names.append(name)
    return tuple(names)
