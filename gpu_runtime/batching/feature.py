"""One sample as every backbone sees it."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VLAFeature:
    """Model-facing prefix of one sample: views in order, instruction, action-query tokens (OFT; 0 for other heads).

    images: uint8 [H, W, 3] RGB each, upright, already at the size the policy is trained at; none for a policy that is
    told its state only.
    key: what the sample is, where that is known (a frame of a dataset): samples of a group with equal keys run once.
    scope: within it (a tenant's id) outputs of the vision tower are kept for equal pictures; "": for no later call.
    Raises ValueError naming the field and the value.
    """

    images: tuple[np.ndarray, ...]
    instruction: str
    query_tokens: int = 0
    key: Hashable | None = None
    scope: str = ""

    def __post_init__(self) -> None:
        for index, image in enumerate(self.images):
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
                raise ValueError(f"images[{index}]: expected uint8 [H, W, 3], got {image.dtype} {list(image.shape)}")
        if self.query_tokens < 0:
            raise ValueError(f"query_tokens: {self.query_tokens} is negative")
