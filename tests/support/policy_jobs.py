"""Adapters of the story's tenants, and jobs that start from them."""

from typing import Any

from django.utils import timezone

from jobs.models import Artifact, ArtifactKind, Job
from jobs.services.dispatch import job_dispatch
from jobs.services.submit import job_submit
from tenants.scope import platform_scope
from tests.support.factories import make_summary
from tests.support.jobs import make_job, reread
from tests.support.memory_runtime import BASE, InMemoryRuntime
from tests.support.story import Person

ACTIONS = ("dx", "dy", "gripper")
FLOW = {"type": "flow_sde"}


def make_manifest(
    *, head: str = "mlp", horizon: int = 4, cameras: tuple[str, ...] = ("observation.images.base",), **changes: Any
) -> dict[str, Any]:
    """What an export says of a policy, as far as the control plane reads it; and more, which it must not mind."""
    schema = make_summary(cameras=cameras, action_dim=len(ACTIONS))["schema"]
    schema["action"]["names"] = list(ACTIONS)
    return {
        "schema_version": "1.0",
        "adapter_id": "a" * 64,
        "base_model": BASE.model_dump(mode="json"),
        "head": {"type": head, "config": {"horizon": horizon}},
        "action": {"dim": len(ACTIONS), "horizon": horizon, "names": list(ACTIONS)},
        "state": {"dim": 3, "names": ["s0", "s1", "s2"]},
        "spec": {"kind": "sft", "dataset": {"id": "d", "cameras": None, "use_state": True}},
        "dataset_schema": schema,
    } | changes


def make_adapter(person: Person, *, kind: str = ArtifactKind.ADAPTER, job: Job | None = None, **said: Any) -> Artifact:
    """A published policy of the person's tenant; ``said`` goes into its manifest."""
    job = job or make_job(person)
    with platform_scope():
        number = Artifact.objects.count()
        return Artifact.objects.create(
            tenant=person.tenant,
            job=job,
            attempt=1,
            runtime_key=f"adapter-{number}",
            kind=kind,
            name=str(kind),
            policy_version=7,
            size_bytes=10,
            sha256=f"{number:064x}",
            manifest=make_manifest(**said),
            created_at=timezone.now(),
        )


def make_policy_spec(kind: str, artifact: Artifact | str, **changes: Any) -> dict[str, Any]:
    """A specification that is admitted for the default adapter; dictionaries are merged into the defaults."""
    spec: dict[str, Any] = {
        "kind": kind,
        "name": f"{kind} of pushing",
        "policy": {"artifact": str(getattr(artifact, "pk", artifact))},
        **{
            "rl": {
                "environment": {"id": "PushCube-v1"},
                "algorithm": {"type": "ppo"},
                "exploration": {"type": "gaussian"},
                "executed_steps": 4,
                "training": {"iterations": 20},
            },
            "evaluation": {"environments": [{"id": "PushCube-v1"}, {"id": "PickCube-v1"}], "episodes": 10},
            "rollout": {"environment": {"id": "PushCube-v1"}, "dataset_name": "pushes of our own", "episodes": 5},
        }[kind],
    }
    for name, value in changes.items():
        merged = isinstance(spec.get(name), dict) and isinstance(value, dict) and "type" not in value
        spec[name] = {**spec[name], **value} if merged else value
    return spec


def make_policy_job(person: Person, kind: str, artifact: Artifact | None = None, **changes: Any) -> Job:
    """A queued job that starts from a policy of the person's tenant."""
    spec = make_policy_spec(kind, artifact or make_adapter(person), **changes)
    return job_submit(tenant=person.tenant, actor=person.actor, spec=spec)


def start_policy_job(
    person: Person, runtime: InMemoryRuntime, kind: str, **changes: Any
) -> tuple[Job, tuple[str, int]]:
    """One whose first attempt the runtime has accepted, and the attempt's key there."""
    job = make_policy_job(person, kind, **changes)
    runtime.artifacts.setdefault(job.policy.runtime_key, b"PK")
    job_dispatch(job.pk, runtime=runtime)
    return reread(job), (str(job.pk), 1)
