"""What a job that starts from a policy is checked for before it is accepted, without starting a simulator."""

from collections.abc import Mapping

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.protocol.environment_spec import EnvironmentSpec
from gpu_runtime.protocol.messages import SubmitJob
from gpu_runtime.protocol.policy_specs import EvaluationJobSpec, RlJobSpec, RolloutJobSpec
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.config import RuntimeConfig
from gpu_runtime.services.errors import InvalidSubmit
from gpu_runtime.services.policies import PolicyBaseMissing, PolicyUnusable, find_policy


def admit_policy_job(
    submit: SubmitJob,
    *,
    config: RuntimeConfig,
    bases: Mapping[str, Backbone],
    artifacts: Artifacts,
    families: Mapping[str, str],
) -> None:
    """Raise InvalidSubmit naming the field, its value and what is allowed."""
    spec = submit.spec
    assert isinstance(spec, RlJobSpec | EvaluationJobSpec | RolloutJobSpec), spec.kind
    assert submit.policy is not None, "checked by the message"
    try:
        find_policy(submit.policy, artifacts, bases)
    except PolicyUnusable as error:
        field = "policy.base_model" if isinstance(error, PolicyBaseMissing) else "policy.artifact_id"
        raise InvalidSubmit(error.code, str(error), field) from error
    if isinstance(spec, EvaluationJobSpec):
        for index, environment in enumerate(spec.environments):
            _check_environment(environment, f"spec.environments.{index}.id", families)
    else:
        _check_environment(spec.environment, "spec.environment.id", families)
    if isinstance(spec, RlJobSpec):
        _check_seats(spec.collection.seats, "spec.collection.seats", config)
    elif isinstance(spec, RolloutJobSpec):
        _check_seats(spec.parallel, "spec.parallel", config)


def _check_environment(environment: EnvironmentSpec, field: str, families: Mapping[str, str]) -> None:
    namespace = environment.id.rpartition("/")[0]
    if namespace not in families:
        known = ", ".join(f"{name}/..." if name else "a ManiSkill id" for name in families)
        message = f"environment {environment.id!r} belongs to no known simulator; allowed: {known}"
        raise InvalidSubmit("unknown_environment", message, field)


def _check_seats(seats: int, field: str, config: RuntimeConfig) -> None:
    """More than there will ever be would be waited for in vain."""
    allowed = min(config.env_seats_total, config.env_seats_per_tenant)
    if seats > allowed:
        name = field.rpartition(".")[2]
        message = f"{name} {seats}: a tenant can have at most {allowed} environments at once"
        raise InvalidSubmit("too_many_seats", message, field)
