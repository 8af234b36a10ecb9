"""What a rollout paid and where its episodes ended, step by step.

Shapes: n chunks in time, B environments, C executed actions per chunk. A chunk is one decision: one observation, C
actions. An episode's last step may lie inside a chunk; what comes after it in that chunk belongs to nobody.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_runtime.training.rl.errors import NonFiniteReward, RolloutMismatch, require_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Rewards and ends of B environments over n chunks, all [n, B, C].

    ``executed_nBC``: steps that the environment took; None: all. With ``auto_reset`` an environment that is done
    starts a new episode with the next chunk; without it, it idles until the rollout ends.
    """

    rewards_nBC: Tensor
    terminated_nBC: Tensor
    truncated_nBC: Tensor
    executed_nBC: Tensor | None = None
    auto_reset: bool = True

    def __post_init__(self) -> None:
        if self.rewards_nBC.dim() != 3:
            raise RolloutMismatch(f"rewards: shape {tuple(self.rewards_nBC.shape)}, allowed: [chunks, envs, steps]")
        flags = {"terminated": self.terminated_nBC, "truncated": self.truncated_nBC, "executed": self.executed_nBC}
        for name, flag in flags.items():
            if flag is None:
                continue
            require_shape(name, flag.shape, self.rewards_nBC.shape)
            if flag.dtype != torch.bool:
                raise RolloutMismatch(f"{name}: dtype {flag.dtype}, allowed: torch.bool")
        if not bool(torch.isfinite(self.rewards_nBC[self.valid_steps()]).all()):
            raise NonFiniteReward("rewards: an executed step paid NaN or infinity")

    @classmethod
    def from_chunks(
        cls,
        rewards_nBC: Tensor,
        executed_nB: Tensor,
        terminated_nB: Tensor,
        truncated_nB: Tensor,
        *,
        auto_reset: bool = True,
    ) -> "Rollout":
        """From environments that stop at the step that ends the episode: it is the last of ``executed_nB`` steps."""
        step_C = torch.arange(rewards_nBC.shape[2], device=rewards_nBC.device)
        last_nBC = step_C == executed_nB[..., None] - 1
        return cls(
            rewards_nBC=rewards_nBC,
            terminated_nBC=last_nBC & terminated_nB[..., None],
            truncated_nBC=last_nBC & truncated_nB[..., None],
            executed_nBC=step_C < executed_nB[..., None],
            auto_reset=auto_reset,
        )

    def valid_steps(self) -> Tensor:
        """[n, B, C]: executed steps up to and including the first done one, of the chunk or (no auto-reset) ever."""
        done = self.terminated_nBC | self.truncated_nBC
        executed = torch.ones_like(done) if self.executed_nBC is None else self.executed_nBC
        if self.auto_reset:
            return _until_first_done(done, executed)
        chunks, envs, steps = done.shape
        in_time = [flag.transpose(0, 1).reshape(envs, chunks * steps) for flag in (done, executed)]
        return _until_first_done(*in_time).reshape(envs, chunks, steps).transpose(0, 1)

    def valid_chunks(self) -> Tensor:
        """[n, B]: chunks with at least one valid step: the decisions that can be learned from."""
        return self.valid_steps().any(dim=2)

    def kept_rewards(self) -> Tensor:
        """[n, B, C]: rewards, zero after an episode's end."""
        return torch.where(self.valid_steps(), self.rewards_nBC, torch.zeros_like(self.rewards_nBC))


def _until_first_done(done: Tensor, executed: Tensor) -> Tensor:
    counted = (done & executed).long()
    ended_before = counted.cumsum(dim=-1) - counted > 0
    return executed & ~ended_before
