"""AdamW with warm-up and decay; a step that cannot be taken leaves everything as it was."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from gpu_runtime.models.errors import NonFiniteGradient
from gpu_runtime.protocol.specs import OptimizerSpec


def learning_rate(spec: OptimizerSpec, *, step: int, total_steps: int) -> float:
    """Rate of update number ``step`` (from 0): linear warm-up, then cosine to ``min_lr_ratio`` or constant."""
    if step < spec.warmup_steps:
        return spec.lr * (step + 1) / spec.warmup_steps
    if spec.schedule == "constant":
        return spec.lr
    progress = (step - spec.warmup_steps) / max(1, total_steps - spec.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return spec.lr * (spec.min_lr_ratio + (1 - spec.min_lr_ratio) * cosine)


def build_optimizer(spec: OptimizerSpec, module: nn.Module, lora: nn.Module | None = None) -> torch.optim.AdamW:
    """AdamW; weight decay on the head's matrices only, never on biases, norms and learned tokens' scales.

    Low-rank updates are a group of their own, without decay: it would pull A away from where B still is zero.
    """
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    vectors = [p for p in module.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": spec.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if lora is not None:
        groups.append({"params": list(lora.parameters()), "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)


def gradient_norm(parameters: Iterable[tuple[str, Tensor]]) -> Tensor:
    """Norm over all gradients. Raises NonFiniteGradient naming the first parameter that has NaN or Inf."""
    named = [(name, p.grad) for name, p in parameters if p.grad is not None]
    norms = torch.stack(torch._foreach_norm([gradient for _, gradient in named]))
    total = norms.norm()
    if not bool(torch.isfinite(total)):
        bad = [name for (name, _), norm in zip(named, norms, strict=True) if not bool(torch.isfinite(norm))]
        raise NonFiniteGradient(
            f"gradient of {bad[0] if bad else 'the whole head (overflow of the norm)'} is not finite"
        )
    return total


def apply_update(optimizer: torch.optim.AdamW, *, norm: Tensor, rate: float, clip: float) -> None:
    """Clip to norm ``clip``, then one AdamW update at ``rate``. The gradients must be finite."""
    for group in optimizer.param_groups:
        group["lr"] = rate
        clip_gradients(group["params"], norm=norm, clip=clip)
    optimizer.step()


def clip_gradients(parameters: Iterable[Tensor], *, norm: Tensor, clip: float) -> None:
    """Scale gradients whose common norm is ``norm`` so that it is at most ``clip``."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, (clip / (norm + 1e-6)).clamp(max=1.0))
