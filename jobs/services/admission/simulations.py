"""What a job that plays must agree with: the simulators and seats that the runtime says it has."""

from collections.abc import Iterator

from gpu_runtime.protocol.camera_names import CamerasRefused, cameras_of
from gpu_runtime.protocol.environment_spec import EnvironmentSpec
from gpu_runtime.protocol.job_specs import PolicyJobSpec
from gpu_runtime.protocol.policy_specs import EvaluationJobSpec, RlJobSpec
from jobs.selectors.runtime import Simulators, runtime_simulators
from tenants.errors import FieldError


def simulation_errors(spec: PolicyJobSpec) -> Iterator[FieldError]:
    """Disagreements with JSON pointers; none as long as the runtime has said nothing, which checks again itself."""
    simulators = runtime_simulators()
    for pointer, environment in _environments(spec):
        yield from _namespace_errors(environment, f"{pointer}/id", simulators)
    yield from _seat_errors(spec, simulators)


def camera_errors(spec: PolicyJobSpec, views: tuple[str, ...]) -> Iterator[FieldError]:
    """Views of the policy without a camera of their own; which ones a task has is seen when it is opened."""
    for pointer, environment in _environments(spec):
        try:
            cameras_of(views, environment.cameras)
        except CamerasRefused as error:
            yield FieldError(pointer=f"{pointer}/cameras", code=error.code, detail=f"{error}.")


def _environments(spec: PolicyJobSpec) -> list[tuple[str, EnvironmentSpec]]:
    if isinstance(spec, EvaluationJobSpec):
        return [(f"/environments/{index}", task) for index, task in enumerate(spec.environments)]
    return [("/environment", spec.environment)]


def _namespace_errors(environment: EnvironmentSpec, pointer: str, simulators: Simulators) -> Iterator[FieldError]:
    known = simulators.namespaces
    if known is not None and environment.namespace not in known:
        offered = ", ".join(f"{name}/NAME" if name else "a ManiSkill id" for name in known)
        detail = f"Environment {environment.id!r} belongs to no simulator of this runtime. Allowed: {offered}."
        yield FieldError(pointer=pointer, code="unknown_environment", detail=detail)


def _seat_errors(spec: PolicyJobSpec, simulators: Simulators) -> Iterator[FieldError]:
    """More seats than one tenant can ever hold would be waited for without end.

    An evaluation takes a seat per episode, as they come, so its ``parallel`` is a bound and no demand.
    """
    limit = simulators.seats_per_tenant
    if limit is None or isinstance(spec, EvaluationJobSpec):
        return
    if isinstance(spec, RlJobSpec):
        asked, pointer = spec.collection.seats, "/collection/seats"
    else:
        asked, pointer = spec.parallel, "/parallel"
    if asked > limit:
        detail = f"{asked} environments side by side: a tenant may hold {limit}. Allowed: 1 to {limit}."
        yield FieldError(pointer=pointer, code="too_many_seats", detail=detail)
