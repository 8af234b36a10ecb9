"""Evaluations of a policy that learned to reach, for tests: planned, served and played with nothing left behind."""

from collections.abc import Sequence

from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.slots import Slot
from gpu_runtime.workflows.evaluate import EvaluationWorkflow, Payer
from gpu_runtime.workflows.evaluation_plan import plan
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from gpu_runtime.workflows.evaluation_result import EpisodeRecord, EvaluationResult
from tests.support.environments import REACH, pool_of
from tests.support.exported_adapters import Demonstrated
from tests.support.inference import Records, make_service, running

ALICE = Payer(tenant_id="alice", job_id="job", slot_id="arm")

ALICE = Payer(tenant_id="alice", job_id="job", slot_id="arm")


def planned(slot: Slot, seeds: Sequence[int], environment: str = REACH, **options) -> EvaluationProtocol:
    return plan(
        slot.policy, environment=environment, seeds=tuple(seeds), adapter_id="a" * 64, policy_version=1, **options
    )


async def evaluated(
    slot: Slot,
    demonstrated: Demonstrated,
    protocol: EvaluationProtocol,
    *,
    limits: dict | None = None,
    service_settings: dict | None = None,
    **options,
) -> EvaluationResult:
    """Play the protocol on a service and a pool of its own; nothing may be left of either."""
    service = serving(slot, demonstrated, **(service_settings or {}))
    async with running(service), pool_of(**(limits or {})) as pool:
        workflow = EvaluationWorkflow(
            protocol=protocol, policy=slot.policy, payer=ALICE, service=service, pool=pool, **options
        )
        try:
            return await workflow.run()
        finally:
            assert pool.status().seats == {}
            assert service.policies.pinned() == 0


def serving(slot: Slot, demonstrated: Demonstrated, *, records: Records | None = None, **settings) -> InferenceService:
    """Not running yet; has version 1 of alice's arm."""
    service = make_service(records or Records(), **settings)
    service.policies.open("alice", "arm")
    service.policies.publish("alice", "arm", 1, ServedPolicy.freeze(slot.policy, demonstrated.backbone))
    return service


def untimed(record: EpisodeRecord) -> EpisodeRecord:
    return record.model_copy(update={"video": None, "predict": None})
