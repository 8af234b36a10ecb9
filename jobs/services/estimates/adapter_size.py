"""How much device memory the training of a LoRA adapter takes, beside the head's."""

from dataclasses import dataclass

from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.lora import LoraSpec, lora_parameters
from gpu_runtime.protocol.specs import SftJobSpec
from jobs.selectors.runtime import runtime_bases

STATE_BYTES = 4 * 4
"""Of each parameter while it trains: itself, its gradient and AdamW's two moments, all fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSize:
    """``parameters`` None: the runtime has not told yet what the base's modules are."""

    parameters: int | None

    @property
    def memory_bytes(self) -> int | None:
        """Weights, gradients and both moments; activations of a step come and go on top."""
        return None if self.parameters is None else self.parameters * STATE_BYTES


def lora_asked(spec: JobSpec) -> LoraSpec | None:
    """The adapter that a job trains; other kinds act with the one of their policy and train none."""
    return spec.lora if isinstance(spec, SftJobSpec) else None


def adapter_size(spec: JobSpec, *, base_model: str) -> AdapterSize | None:
    """None: the job trains no adapter."""
    asked = lora_asked(spec)
    if asked is None:
        return None
    base = runtime_bases().get(base_model)
    if base is None or not base.lora_modules:
        return AdapterSize(parameters=None)
    return AdapterSize(parameters=lora_parameters(asked, base.lora_modules))
