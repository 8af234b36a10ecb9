"""A published policy version while a job acts with it: one slot of the policy store, opened once, closed once."""

from dataclasses import dataclass, field

from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.protocol.messages import SubmitJob
from gpu_runtime.services.policies import BoundPolicy
from gpu_runtime.services.runs import workload_key


@dataclass(slots=True, kw_only=True)
class PolicyPlace:
    """Event loop only."""

    submit: SubmitJob
    policy: BoundPolicy
    inference: InferenceService
    _open: bool = field(init=False, default=False)

    @property
    def slot_id(self) -> str:
        return workload_key(self.submit.job_id, self.submit.attempt)

    def open(self) -> None:
        """Serve the policy under its tenant's name, with its tenant's weight."""
        tenant, policies = self.submit.tenant_id, self.inference.policies
        self.inference.set_weight(tenant, self.submit.tenant_weight)
        policies.open(tenant, self.slot_id)
        self._open = True
        served = ServedPolicy.freeze(self.policy.adapter.policy, self.policy.backbone)
        policies.publish(tenant, self.slot_id, self.policy.version, served)

    def close(self) -> None:
        """What is in flight finishes; nothing new begins."""
        if self._open:
            self._open = False
            self.inference.policies.close(self.submit.tenant_id, self.slot_id)
