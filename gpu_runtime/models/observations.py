"""A few observations a policy acted on, kept as they were: what a reload is judged by where there is no dataset.

Shapes: N observations, S state dims; images uint8 [N, H, W, 3].
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.errors import TensorMismatch

IMAGE, STATE = "image.", "state"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observations:
    """Views at the policy's own size, in its order; the state in raw units."""

    images: tuple[np.ndarray, ...]
    instructions: tuple[str, ...]
    state_NS: np.ndarray | None

    def __len__(self) -> int:
        return len(self.instructions)

    def features(self, query_tokens: int) -> list[VLAFeature]:
        """As a backbone sees them."""
        return [
            VLAFeature(images=tuple(view[row] for view in self.images), instruction=text, query_tokens=query_tokens)
            for row, text in enumerate(self.instructions)
        ]

    def tensors(self) -> dict[str, Tensor]:
        """Everything but the texts, by name."""
        arrays = {f"{IMAGE}{view:02d}": image for view, image in enumerate(self.images)}
        if self.state_NS is not None:
            arrays[STATE] = self.state_NS
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], instructions: tuple[str, ...], source: str) -> "Observations":
        """What ``tensors`` took apart. Raises TensorMismatch naming a tensor that can't be an observation's."""
        images = {name: tensor for name, tensor in sorted(tensors.items()) if name.startswith(IMAGE)}
        for name, image in images.items():
            if image.dtype != torch.uint8 or image.ndim != 4 or image.shape[0] != len(instructions):
                raise TensorMismatch(
                    f"{source}: tensor {name!r} is {image.dtype} {list(image.shape)}, "
                    f"allowed: uint8 [{len(instructions)}, H, W, 3]"
                )
        state = tensors.get(STATE)
        if state is not None and (state.ndim != 2 or len(state) != len(instructions)):
            raise TensorMismatch(f"{source}: state is {list(state.shape)}, allowed: [{len(instructions)}, S]")
        return cls(
            images=tuple(image.numpy() for image in images.values()),
            instructions=instructions,
            state_NS=None if state is None else state.numpy(),
        )
