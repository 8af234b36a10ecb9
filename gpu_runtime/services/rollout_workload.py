"""Collecting rollouts as a workload: a policy's own episodes, and the dataset they make."""

import functools

from gpu_runtime.protocol.messages import ArtifactPublished, SubmitJob
from gpu_runtime.protocol.policy_specs import RolloutJobSpec
from gpu_runtime.services.environment_usage import EnvironmentUsage
from gpu_runtime.services.job_folder import job_folder
from gpu_runtime.services.parts import RuntimeParts
from gpu_runtime.services.policies import BoundPolicy, load_policy
from gpu_runtime.services.policy_place import PolicyPlace
from gpu_runtime.services.policy_workload import AttemptShelf, PolicyWorkload
from gpu_runtime.services.telling import AttemptTeller
from gpu_runtime.workflows.actor import Acting
from gpu_runtime.workflows.rollout import RolloutWorkflow


def mount_rollout(submit: SubmitJob, parts: RuntimeParts, resumed: bool) -> PolicyWorkload:
    """Load the policy; blocks on files. Raises PolicyUnusable, AdapterError."""
    spec, binding = submit.spec, submit.policy
    assert isinstance(spec, RolloutJobSpec), spec.kind
    assert binding is not None, "checked by the message"
    policy = load_policy(binding, parts.artifacts, parts.bases)
    place = PolicyPlace(submit=submit, policy=policy, inference=parts.inference)
    shelf = AttemptShelf(submit=submit, policy_version=policy.version, durability=parts.durability, files=parts.files)
    workflow = _workflow(spec, policy, place, shelf, parts)

    async def leave() -> tuple[ArtifactPublished, ...]:
        dataset = workflow.dataset
        if dataset is None:  # stopped before anything was to be kept
            return ()
        facts = shelf.facts("dataset", "dataset", spec.dataset_name, dataset.manifest)
        return (await shelf.publish(functools.partial(parts.artifacts.publish_folder, dataset.folder), facts),)

    async def leave_early() -> tuple[ArtifactPublished, ...]:
        await workflow.keep()
        return await leave()

    return PolicyWorkload(submit=submit, workflow=workflow, place=place, leave=leave, leave_early=leave_early)


def _workflow(
    spec: RolloutJobSpec, policy: BoundPolicy, place: PolicyPlace, shelf: AttemptShelf, parts: RuntimeParts
) -> RolloutWorkflow:
    submit = place.submit
    folder = job_folder(parts.config.state, submit)
    folder.mkdir(parents=True, exist_ok=True)
    return RolloutWorkflow(
        spec=spec,
        policy=policy.adapter.policy,
        adapter_id=policy.adapter.manifest.adapter_id,
        acting=Acting(
            tenant_id=submit.tenant_id,
            job_id=submit.job_id,
            attempt=submit.attempt,
            slot_id=place.slot_id,
            version=policy.version,
        ),
        service=parts.inference,
        pool=parts.pool,
        tell=AttemptTeller(submit=submit, durability=parts.durability, metrics_are_steps=True),
        meter=EnvironmentUsage(submit=submit, durability=parts.durability),
        durable=shelf.durable,
        folder=folder,
    )
