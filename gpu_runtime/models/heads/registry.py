"""Head types by the name a job asks for. A new head is one file, one line here and one test."""

from collections.abc import Callable

import torch

from gpu_runtime.models.heads.base import Head, HeadShape
from gpu_runtime.models.heads.gr00t import Gr00tHead
from gpu_runtime.models.heads.mlp import MlpHead
from gpu_runtime.models.heads.oft import OftHead
from gpu_runtime.protocol.specs import HeadSpec

HEADS: dict[str, type[Head]] = {
    "gr00t": Gr00tHead,
    "mlp": MlpHead,
    "oft": OftHead,
}


def build_head(
    spec: HeadSpec, *, action_dim: int, state_dim: int, tap_width: Callable[[str], int], generator: torch.Generator
) -> Head:
    """A freshly initialised head; ``tap_width`` is the backbone's feature width at a tap."""
    kind = HEADS[spec.type]
    widths = {tap: tap_width(tap) for tap in kind.taps_of(spec)}
    shape = HeadShape(action_dim=action_dim, state_dim=state_dim, feature_widths=widths)
    head = kind(spec, shape)  # type: ignore[call-arg,arg-type]
    head.reset_parameters(generator)
    return head
