"""A policy in an environment: checked before it moves anything, then translated both ways.

Shapes: H horizon, A action dimensions, S state dimensions.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.data.images import fit_image
from gpu_runtime.environments.adapters import ActionAdapter, adapter_between
from gpu_runtime.environments.base import SIZE_MAX, SIZE_MIN, EnvironmentKind, StateKind, camera_of
from gpu_runtime.environments.errors import SchemaMismatch, UnknownCamera
from gpu_runtime.environments.results import Observation
from gpu_runtime.models.policy import Policy
from gpu_runtime.protocol.camera_names import CamerasRefused, cameras_of
from gpu_runtime.protocol.schema import Camera, DatasetSchema


def kind_for(
    policy: Policy,
    env_id: str,
    state: StateKind,
    control_mode: str | None = None,
    cameras: Mapping[str, str] | None = None,
) -> EnvironmentKind:
    """The environment with one camera per view of the policy, in its order, drawn as large as its data were.

    ``cameras``: a view's key -> the environment's name of it; None: the names in the keys. Raises SchemaMismatch.
    """
    try:
        names = cameras_of([view.key for view in policy.views], cameras)
    except CamerasRefused as error:
        raise SchemaMismatch(str(error)) from error
    return EnvironmentKind(
        env_id=env_id, cameras=names, size=_render_size(policy), state=state, control_mode=control_mode
    )


@contextmanager
def matching(policy: Policy, kind: EnvironmentKind) -> Iterator[None]:
    """Where an environment of ``kind`` is opened: a camera that it does not have is told of with the policy's view.

    Raises SchemaMismatch.
    """
    try:
        yield
    except UnknownCamera as error:
        pairs = zip(policy.views, kind.cameras or (), strict=True)
        wanted = ", ".join(f"{view.key} as {name!r}" for view, name in pairs)
        raise SchemaMismatch(
            f"{error}; the policy sees {wanted}: the field cameras of the environment says which camera shows what"
        ) from error


def _cameras(policy: Policy) -> tuple[Camera, ...]:
    by_key = {camera.key: camera for camera in policy.schema.cameras}
    return tuple(by_key[view.key] for view in policy.views)


def _render_size(policy: Policy) -> int:
    """Pictures are resized as in training; those that an environment cannot draw so are drawn at the policy's size."""
    sizes = {size for camera in _cameras(policy) for size in (camera.height, camera.width)}
    if len(sizes) == 1 and SIZE_MIN <= min(sizes) <= SIZE_MAX:
        return min(sizes)
    return policy.spec.dataset.image_size


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFit:
    """What remains of the difference between the two once they fit."""

    policy: Policy
    to_environment: ActionAdapter

    @classmethod
    def of(cls, policy: Policy, environment: DatasetSchema, cameras: tuple[str, ...] | None = None) -> "PolicyFit":
        """Compare all that must agree; a refusal names both sides.

        ``cameras``: the environment's, one per view, as ``kind_for`` found them; None: those of the views' own names.
        Raises SchemaMismatch.
        """
        shown = _cameras(policy)
        if shown and cameras is not None:
            shown = tuple(camera_of(name, _render_size(policy)) for name in cameras)
        seen = policy.schema.model_copy(update={"cameras": shown})
        if not policy.views:  # what is drawn for those who watch concerns it as little
            environment = environment.model_copy(update={"cameras": ()})
        if not policy.state_dim:  # it was trained without the state: any will do
            seen = seen.model_copy(update={"state": environment.state})
        return cls(policy=policy, to_environment=adapter_between(seen, environment))

    def check_start(self, observation: Observation) -> None:
        """Compare a first state with the policy's statistics: another unit or frame is far outside of them.

        Starts lie at the edge of what a dataset holds, so that a whole range more is allowed on either side.
        Raises SchemaMismatch.
        """
        if self.policy.states is None:
            return
        statistics = self.policy.states.statistics
        low_S, high_S = np.asarray(statistics.min), np.asarray(statistics.max)
        margin_S = np.maximum(high_S - low_S, np.median(high_S - low_S))
        outside = np.flatnonzero((observation.state_S < low_S - margin_S) | (observation.state_S > high_S + margin_S))
        if outside.size:
            worst = int(outside[0])
            raise SchemaMismatch(
                f"state dimension {worst} ({self.policy.states.names[worst]}): the environment starts at "
                f"{observation.state_S[worst]:.4g}; the policy's data are from {low_S[worst]:.4g} to "
                f"{high_S[worst]:.4g}: they do not mean the same"
            )

    def feature(self, observation: Observation) -> VLAFeature:
        """What the base is shown: the policy's views in its order and size, its own words if it has any."""
        selection = self.policy.spec.dataset
        return VLAFeature(
            images=tuple(fit_image(image, size=selection.image_size) for image in self._pictures(observation)),
            instruction=selection.instruction or observation.instruction,
            query_tokens=self.policy.query_tokens,
        )

    def _pictures(self, observation: Observation) -> tuple[np.ndarray, ...]:
        return observation.images if self.policy.views else ()

    def state(self, observation: Observation) -> np.ndarray | None:
        """Float32 [1, S]; None for a policy without a state."""
        return observation.state_S[None] if self.policy.state_dim else None
