"""A batch of chunks on the device, and what the current weights make of any of its rows.

Shapes: N chunks of the batch, M chunks of a minibatch, C executed actions per chunk, A action dims,
D width of a pooled feature.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.heads.density import Score
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.training.rl.batch import RlBatch
from gpu_runtime.training.rl.errors import FutureVersion, RolloutMismatch, require_shape


class Rows:
    """Raises RolloutMismatch for a batch that this slot can't have played, FutureVersion for one from the future."""

    def __init__(self, slot: RlSlot, features: Sequence[Features], batch: RlBatch) -> None:
        self._slot, self.features = slot, features
        self._state_NS, self._progress_N = batch.state_NS, batch.progress_N
        self._pooled_ND: Tensor | None = None  # for the critic; no update changes it, so once is enough
        device = slot.policy.device
        _check(slot, features, batch)
        self._trace = {name: torch.from_numpy(array).to(device) for name, array in batch.trace.items()}
        self.behaviour_NCA = self._trace["log_prob"].float()
        self.advantage_N = torch.from_numpy(batch.advantage_N).to(device)
        self.returns_N = _tensor(batch.returns_N, device)
        self.value_N = _tensor(batch.value_N, device)
        self.version_N = torch.from_numpy(batch.version_N)
        explored_A = slot.models.actor.explored_A
        self.mask_NCA = torch.from_numpy(batch.mask_NC).to(device)[:, :, None] & explored_A

    def __len__(self) -> int:
        return len(self.features)

    def score(self, rows: Tensor) -> Score:
        """Log-probability and entropy of these chunks, [M, C, A]."""
        trace = {name: value[rows] for name, value in self._trace.items()}
        return self._slot.models.score(self._chosen(rows), self._of(self._state_NS, rows), trace)

    def value(self, rows: Tensor) -> Tensor:
        """The critic's values of these chunks' observations, [M]."""
        if self._pooled_ND is None:
            self._pooled_ND = self._slot.models.pool(self.features)
        progress = self._of(self._progress_N, rows)
        return self._slot.models.value_of(self._pooled_ND[rows], self._of(self._state_NS, rows), progress)

    def reference_log_prob(self, rows: Tensor) -> Tensor:
        """Under the weights that reinforcement learning started from, [M, C, A]."""
        trace = {name: value[rows] for name, value in self._trace.items()}
        return self._slot.models.reference_log_prob(self._chosen(rows), self._of(self._state_NS, rows), trace)

    @torch.no_grad()
    def everywhere(self, find: Callable[[Tensor], Tensor], size: int) -> Tensor:
        """``find`` of all rows in their order, ``size`` of them at a time, without a gradient."""
        return torch.cat([find(part) for part in torch.arange(len(self)).split(size)])

    def _chosen(self, rows: Tensor) -> list[Features]:
        return [self.features[row] for row in rows.tolist()]

    @staticmethod
    def _of(array: np.ndarray | None, rows: Tensor) -> np.ndarray | None:
        return None if array is None else array[rows.numpy()]


def _check(slot: RlSlot, features: Sequence[Features], batch: RlBatch) -> None:
    samples, actor = len(batch), slot.models.actor
    if len(features) != samples:
        raise RolloutMismatch(f"features: {len(features)} rows, allowed: {samples} as in the batch")
    if "log_prob" not in batch.trace:
        raise RolloutMismatch(f"trace: {sorted(batch.trace)}, allowed: with log_prob")
    shape = (samples, actor.executed, len(actor.explored_A))
    require_shape("trace.log_prob", batch.trace["log_prob"].shape, shape)
    require_shape("mask", batch.mask_NC.shape, shape[:2])
    if (newest := int(batch.version_N.max())) > slot.policy_version:
        raise FutureVersion(f"behaviour version {newest} is newer than the policy version {slot.policy_version}")


def _tensor(array: np.ndarray | None, device: torch.device) -> Tensor | None:
    return None if array is None else torch.from_numpy(array).to(device)
