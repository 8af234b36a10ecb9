"""LoRA on the base model's text stack, as a tenant asks for it."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from gpu_runtime.protocol.base import Message

TargetModule = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGET_MODULES: tuple[TargetModule, ...] = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
)  # fmt: skip


class LoraSpec(Message):
    """Low-rank updates of text modules: W + alpha / rank * B A. No dropout."""

    rank: Annotated[int, Field(ge=1, le=256, description="Rank of every update.")] = 8
    alpha: Annotated[float, Field(gt=0, le=4096, description="Updates are scaled by alpha / rank.")] = 16
    target_modules: Annotated[
        tuple[TargetModule, ...], Field(min_length=1, description="Text modules that get an update.")
    ] = TARGET_MODULES

    @property
    def scaling(self) -> float:
        """Factor of B A."""
        return self.alpha / self.rank


class TextModules(Message):
    """Linear modules of one name and shape in a base's text layers."""

    name: TargetModule
    inputs: int
    outputs: int
    count: int


def lora_parameters(spec: LoraSpec, modules: Sequence[TextModules]) -> int:
    """How many numbers the updates of these modules hold: A [rank, inputs] and B [outputs, rank] of each."""
    chosen = (one for one in modules if one.name in spec.target_modules)
    return sum(spec.rank * (one.inputs + one.outputs) * one.count for one in chosen)
