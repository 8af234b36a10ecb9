"""A training batch of a flow head: noisy chunks, their velocity, and what they are conditioned on.

Shapes: B samples, K noise draws, M = B*K chunks, H horizon, A action dims, S state dims, L condition tokens,
D condition width.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Condition:
    """One tenant's standardised backbone tokens; ``mask_BL`` None: all samples are equally long."""

    x_BLD: Tensor
    mask_BL: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowInputs:
    """Draws of one sample are neighbours. ``conditions`` has one part, or one for each tenant."""

    noisy_MHA: Tensor
    bucket_M: Tensor
    target_MHA: Tensor
    mask_MH: Tensor
    state_BS: Tensor | None
    conditions: tuple[Condition, ...]
    seeds: tuple[int, ...]  # of dropout, by tenant

    @property
    def signature(self) -> tuple[Hashable, ...]:
        """Equal for batches that can be joined; their conditions may differ in length."""
        return tuple(self.noisy_MHA.shape)

    @staticmethod
    def join(parts: Sequence["FlowInputs"]) -> "FlowInputs":
        """Several tenants' rows, one behind another."""
        states = [part.state_BS for part in parts if part.state_BS is not None]
        return FlowInputs(
            noisy_MHA=torch.cat([part.noisy_MHA for part in parts]),
            bucket_M=torch.cat([part.bucket_M for part in parts]),
            target_MHA=torch.cat([part.target_MHA for part in parts]),
            mask_MH=torch.cat([part.mask_MH for part in parts]),
            state_BS=torch.cat(states) if states else None,
            conditions=_join([condition for part in parts for condition in part.conditions]),
            seeds=tuple(seed for part in parts for seed in part.seeds),
        )


def _join(conditions: list[Condition]) -> tuple[Condition, ...]:
    """One part where nothing is padded and all are equally long: padding would change the order of sums."""
    if len({condition.x_BLD.shape for condition in conditions}) > 1 or any(c.mask_BL is not None for c in conditions):
        return tuple(conditions)
    return (Condition(x_BLD=torch.cat([condition.x_BLD for condition in conditions]), mask_BL=None),)
