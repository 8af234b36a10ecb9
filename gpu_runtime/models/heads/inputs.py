"""The proprioceptive state as a head receives it.

Shapes: B samples, S state dims.
"""

from torch import Tensor

from gpu_runtime.models.errors import BatchMismatch


def required_state(state_BS: Tensor | None, dims: int) -> Tensor:
    """The state, or BatchMismatch when it is missing or of another size."""
    if state_BS is None or state_BS.shape[-1] != dims:
        found = "missing" if state_BS is None else f"{state_BS.shape[-1]} dimensions"
        raise BatchMismatch(f"state: {found}, allowed: {dims} dimensions")
    return state_BS
