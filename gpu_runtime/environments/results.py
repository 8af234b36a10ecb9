"""What a session answers, and how it is read from a process that is not trusted to be well.

Shapes: C actions of a chunk, S state dimensions, H height, W width in pixels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_runtime.environments.errors import EnvironmentLost, LostReason
from gpu_runtime.protocol.schema import DatasetSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a policy decides on: images uint8 [H, W, 3], upright, in the schema's order; state float32 [S]; words."""

    images: tuple[np.ndarray, ...]
    state_S: np.ndarray
    instruction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """How a try begins. ``solved``: by luck, there is nothing to do, so it must not count as a success.

    ``initial_state`` is equal for equal worlds: as many different ones as there are different starts.
    """

    observation: Observation
    solved: bool
    initial_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResult:
    """What one chunk led to; cameras are rendered once, at its end.

    ``rewards_C`` float32, zero from ``executed`` on: a try's end cuts its last chunk short. ``success`` is that of
    the last step taken, ``success_once`` of any step since the reset, ``success_step`` the count of steps up to the
    first successful one (0: none yet). ``final_observation`` is what was there when the try ended (to bootstrap the
    value of a truncated one), None while it goes on.
    """

    rewards_C: np.ndarray
    executed: int
    terminated: bool
    truncated: bool
    success: bool
    success_once: bool
    success_step: int
    observation: Observation
    final_observation: Observation | None

    @property
    def ended(self) -> bool:
        """Whether the try is over, one way or the other."""
        return self.terminated or self.truncated


def read_reset(reply: Any, schema: DatasetSchema) -> Reset:
    """Check one slot's answer to a reset. Raises EnvironmentLost."""
    fields = _fields(reply, {"observation": dict, "solved": bool, "initial_state": str})
    return Reset(
        observation=_read_observation(fields["observation"], schema),
        solved=fields["solved"],
        initial_state=fields["initial_state"],
    )


def read_chunk(reply: Any, schema: DatasetSchema, steps: int) -> ChunkResult:
    """Check one slot's answer to a chunk of ``steps`` actions. Raises EnvironmentLost."""
    flags = dict.fromkeys(("terminated", "truncated", "success", "success_once"), bool)
    fields = _fields(reply, {"rewards": np.ndarray, "executed": int, "success_step": int, "observation": dict} | flags)
    executed, ended = fields["executed"], fields["terminated"] or fields["truncated"]
    if not 1 <= executed <= steps or (executed < steps and not ended):
        raise _malformed(f"executed {executed} of {steps} actions, ended: {ended}")
    observation = _read_observation(fields["observation"], schema)
    return ChunkResult(
        rewards_C=_finite(fields["rewards"], (steps,), "rewards"),
        executed=executed,
        success_step=fields["success_step"],
        **{name: fields[name] for name in flags},
        observation=observation,
        final_observation=observation if ended else None,
    )


def _read_observation(reply: Any, schema: DatasetSchema) -> Observation:
    fields = _fields(reply, {"images": list, "state": np.ndarray, "instruction": str})
    if len(fields["images"]) != len(schema.cameras):
        raise _malformed(f"{len(fields['images'])} images; the schema has {len(schema.cameras)} cameras")
    for image, camera in zip(fields["images"], schema.cameras, strict=True):
        upright = (camera.height, camera.width) if camera.rotation_deg % 180 == 0 else (camera.width, camera.height)
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape != (*upright, 3):
            raise _malformed(f"image of {camera.key} is not uint8 {(*upright, 3)}")
    return Observation(
        images=tuple(fields["images"]),
        state_S=_finite(fields["state"], (schema.state.dim if schema.state else 0,), "state"),
        instruction=fields["instruction"],
    )


def _fields(reply: Any, kinds: dict[str, type]) -> dict[str, Any]:
    if not isinstance(reply, dict) or set(reply) != set(kinds):
        raise _malformed(f"a reply with {sorted(reply) if isinstance(reply, dict) else reply!r}")
    for name, kind in kinds.items():
        if type(reply[name]) is not kind:
            raise _malformed(f"{name} is a {type(reply[name]).__name__}, not a {kind.__name__}")
    return reply


def _finite(values: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    if values.shape != shape or values.dtype != np.float32:
        raise _malformed(f"{name} is {values.dtype} {values.shape}, not float32 {shape}")
    if not np.isfinite(values).all():
        raise EnvironmentLost(LostReason.NOT_FINITE, f"{name} is {values.tolist()}")
    return values


def _malformed(what: str) -> EnvironmentLost:
    return EnvironmentLost(LostReason.MALFORMED, what)
