"""What a job that starts from a policy must agree with: the adapter's manifest and the resident bases."""

from collections.abc import Iterator
from uuid import UUID

from pydantic import ValidationError

from gpu_runtime.protocol.job_specs import PolicyJobSpec
from gpu_runtime.protocol.policy_specs import RlJobSpec
from jobs.models import Artifact, ArtifactKind
from jobs.selectors.jobs import artifact_get
from jobs.services.admission.adapter_facts import AdapterFacts
from jobs.services.admission.simulations import camera_errors, simulation_errors
from jobs.services.admission.start import Start, bases_allowed, refused, resident_base
from tenants.errors import ApplicationError, FieldError
from tenants.models import Tenant

POLICY = "/policy/artifact"
EXPLORATION_OF_HEAD = {"mlp": ("gaussian",), "oft": ("gaussian",), "gr00t": ("flow_sde", "flow_noise")}


def admit_policy(tenant: Tenant, spec: PolicyJobSpec) -> Start:
    """The policy the job starts from. Raises ApplicationError 422 with every disagreement at once."""
    errors = list(simulation_errors(spec))
    try:
        artifact, facts = _adapter(tenant, spec.policy.artifact)
    except ApplicationError as error:
        raise refused([*error.errors, *errors]) from None
    errors = [*_base_errors(facts), *camera_errors(spec, facts.cameras), *_spec_errors(spec, facts), *errors]
    if errors:
        raise refused(errors)
    return Start(base_model=facts.base_model.name, head=facts.head.type, policy=artifact)


def _adapter(tenant: Tenant, artifact_id: str) -> tuple[Artifact, AdapterFacts]:
    """A foreign artifact and a missing one are the same answer. Raises ApplicationError with the pointer."""
    try:
        artifact = artifact_get(tenant, UUID(artifact_id))
    except (ApplicationError, ValueError):
        detail = f"There is no artifact {artifact_id!r}. Allowed: ids of your own adapters."
        raise _policy_refused("unknown_artifact", detail) from None
    if artifact.kind != ArtifactKind.ADAPTER:
        detail = f"Artifact {artifact_id!r} is a {artifact.kind}. Allowed: an artifact of kind {ArtifactKind.ADAPTER}."
        raise _policy_refused("artifact_not_adapter", detail)
    if artifact.deleted_at is not None:
        detail = f"Artifact {artifact_id!r} was deleted. Allowed: an adapter whose file is kept."
        raise _policy_refused("artifact_deleted", detail)
    try:
        return artifact, AdapterFacts.model_validate(artifact.manifest)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        detail = f"The manifest of adapter {artifact_id!r} lacks a valid {where!r}. Allowed: one of this release."
        raise _policy_refused("manifest_invalid", detail) from None


def _base_errors(facts: AdapterFacts) -> Iterator[FieldError]:
    base = facts.base_model
    is_offered, reported = resident_base(base.name)
    if not is_offered:
        detail = f"The policy's base model {base.name!r} is not resident here. Allowed: one of {bases_allowed()}."
        yield FieldError(pointer=POLICY, code="unknown_base_model", detail=detail)
    elif reported is not None and reported.revision != base.revision:
        detail = (
            f"The policy was trained on revision {base.revision!r} of {base.name!r}, resident is "
            f"{reported.revision!r}. Allowed: a policy of the resident revision."
        )
        yield FieldError(pointer=POLICY, code="base_model_changed", detail=detail)


def _spec_errors(spec: PolicyJobSpec, facts: AdapterFacts) -> Iterator[FieldError]:
    horizon = facts.action.horizon
    if spec.executed_steps is not None and spec.executed_steps > horizon:
        detail = f"executed_steps {spec.executed_steps}: the policy's chunks have {horizon}. Allowed: 1 to {horizon}."
        yield FieldError(pointer="/executed_steps", code="horizon_too_short", detail=detail)
    if isinstance(spec, RlJobSpec):
        yield from _exploration_errors(spec, facts)


def _exploration_errors(spec: RlJobSpec, facts: AdapterFacts) -> Iterator[FieldError]:
    fitting = EXPLORATION_OF_HEAD.get(facts.head.type, ())
    if spec.exploration.type not in fitting:
        detail = (
            f"Exploration {spec.exploration.type!r} does not fit the policy's head {facts.head.type!r}. "
            f"Allowed: {', '.join(fitting) or 'none, this head cannot explore'}."
        )
        yield FieldError(pointer="/exploration/type", code="exploration_mismatch", detail=detail)
    names, held = facts.action.names, spec.unexplored
    for index, name in enumerate(held):
        if name not in names:
            detail = f"The policy's actions have no dimension {name!r}. Allowed: {', '.join(names)}."
            yield FieldError(pointer=f"/unexplored/{index}", code="unknown_dimension", detail=detail)
        elif name in held[:index]:
            yield FieldError(pointer=f"/unexplored/{index}", code="repeated", detail=f"{name!r} is named twice.")
    if set(names) <= set(held):
        detail = f"Every action dimension {list(names)} is held fixed. Allowed: all but one of them at most."
        yield FieldError(pointer="/unexplored", code="nothing_explored", detail=detail)


def _policy_refused(code: str, detail: str) -> ApplicationError:
    error = FieldError(pointer=POLICY, code=code, detail=detail)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))
