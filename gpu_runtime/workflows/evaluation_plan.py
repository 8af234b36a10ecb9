"""What an evaluation is asked for, as the protocol that its figures will depend on."""

from collections.abc import Mapping

from gpu_runtime.environments.base import StateKind
from gpu_runtime.models.policy import Policy
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol, package_versions
from gpu_runtime.workflows.policy_fit import kind_for


class EvaluationRefused(ValueError):
    """The evaluation was asked for something that the policy cannot do; nothing has run."""

    code = "evaluation_refused"


def plan(
    policy: Policy,
    *,
    environment: str,
    seeds: tuple[int, ...],
    adapter_id: str,
    policy_version: int,
    state: StateKind = StateKind.PROPRIOCEPTION,
    control_mode: str | None = None,
    cameras: Mapping[str, str] | None = None,
    max_steps: int | None = None,
    executed_steps: int | None = None,
    goes_on_after_success: bool = False,
    exact: bool = False,
) -> EvaluationProtocol:
    """The protocol for this policy; ``executed_steps``: None for its whole chunk; ``cameras`` as in ``kind_for``.

    Raises EvaluationRefused, SchemaMismatch.
    """
    executed = policy.horizon if executed_steps is None else executed_steps
    if not 1 <= executed <= policy.horizon:
        raise EvaluationRefused(f"execute: {executed}, allowed: 1 to {policy.horizon}, the policy's chunk")
    if len(set(seeds)) != len(seeds):
        raise EvaluationRefused("seeds: some are there twice, allowed: each once")
    kind = kind_for(policy, environment, state, control_mode, cameras)
    assert kind.cameras is not None
    return EvaluationProtocol(
        environment=environment,
        state=state,
        control_mode=control_mode,
        cameras=kind.cameras,
        render_size=kind.size,
        image_size=policy.spec.dataset.image_size,
        seeds=seeds,
        max_steps=max_steps,
        executed_steps=executed,
        goes_on_after_success=goes_on_after_success,
        exact=exact,
        adapter_id=adapter_id,
        policy_version=policy_version,
        packages=package_versions(environment),
    )
