"""AdamW with warm-up and decay; a step that cannot be taken leaves everything as it was."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpu_runtime.models.errors import NonFiniteGradient
from gpu_runtime.models.flat import Flat
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedWeights:
    """What one AdamW updates, in groups of their own weight decay. A step costs a few operations, not a few each."""

    groups: tuple[Flat, ...]
    optimizer: torch.optim.AdamW

    @classmethod
    def of(cls, spec: OptimizerSpec, module: nn.Module, lora: nn.Module | None = None) -> "TrainedWeights":
        """Weight decay on the head's matrices only, never on biases, norms and learned tokens' scales.

        Low-rank updates, as ``lora.*``, are a group of their own, without decay: it would pull A away from where B
        still is zero.
        """
        head = dict(module.named_parameters())
        groups = [
            ({name: p for name, p in head.items() if p.ndim >= 2}, spec.weight_decay),
            ({name: p for name, p in head.items() if p.ndim < 2}, 0.0),
            ({} if lora is None else {f"lora.{name}": p for name, p in lora.named_parameters()}, 0.0),
        ]
        flats = [(Flat(parameters), decay) for parameters, decay in groups if parameters]
        optimizer = torch.optim.AdamW(
            [{"params": [flat.whole], "weight_decay": decay} for flat, decay in flats],
            lr=spec.lr,
            betas=spec.betas,
            eps=spec.eps,
            fused=True,
        )
        return cls(groups=tuple(flat for flat, _ in flats), optimizer=optimizer)

    def parameters(self) -> dict[str, nn.Parameter]:
        """By name, in the groups' order."""
        return {name: parameter for group in self.groups for name, parameter in group.parameters.items()}

    def gather(self) -> None:
        """Take the parameters' gradients over. Once they are taken it does nothing."""
        for group in self.groups:
            group.gather()

    def clear(self) -> None:
        """No gradients are left."""
        for group in self.groups:
            group.clear()

    def gradient_norm(self) -> Tensor:
        """Norm over all gradients. Raises NonFiniteGradient naming the first parameter that has NaN or Inf."""
        self.gather()
        gradients = [group.whole.grad for group in self.groups if group.whole.grad is not None]
        total = torch.stack(torch._foreach_norm(gradients)).norm()
        if not bool(torch.isfinite(total)):
            raise NonFiniteGradient(f"gradient of {self._not_finite()} is not finite")
        return total

    def update(self, *, norm: Tensor, rate: float, clip: float) -> None:
        """Clip to norm ``clip``, then one AdamW update at ``rate``. The gradients must be finite; none are left."""
        clip_gradients([group.whole for group in self.groups], norm=norm, clip=clip)
        for options in self.optimizer.param_groups:
            options["lr"] = rate
        self.optimizer.step()
        self.clear()

    def moments(self) -> dict[str, Tensor]:
        """AdamW's state by parameter name; zeros before the first step, which is what AdamW itself starts from."""
        tensors: dict[str, Tensor] = {}
        for group in self.groups:
            state = self.optimizer.state.get(group.whole) or {}
            step = state.get("step", torch.zeros(()))
            tensors |= {f"step/{name}": step for name in group.parameters}
            for key in ("exp_avg", "exp_avg_sq"):
                whole_P = state.get(key, torch.zeros_like(group.whole))
                tensors |= {f"{key}/{name}": view for name, view in group.named(whole_P)}
        return tensors

    def restore_moments(self, tensors: Mapping[str, Tensor]) -> None:
        """Give AdamW back what ``moments`` took down. Raises KeyError naming what is missing."""
        for group in self.groups:
            device = group.whole.device  # a fused AdamW keeps its step count beside the parameters too
            state = {"step": tensors[f"step/{next(iter(group.parameters))}"].to(device)}
            for key in ("exp_avg", "exp_avg_sq"):
                parts = {name: tensors[f"{key}/{name}"].to(device) for name in group.parameters}
                state[key] = group.laid_out(parts)
            self.optimizer.state[group.whole] = state

    def _not_finite(self) -> str:
        for group in self.groups:
            if group.whole.grad is not None:
                for name, gradient in group.named(group.whole.grad):
                    if not bool(torch.isfinite(gradient).all()):
                        return name
        return "the whole head (overflow of the norm)"


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


def clip_gradients(parameters: Iterable[Tensor], *, norm: Tensor, clip: float) -> None:
    """Scale gradients whose common norm is ``norm`` so that it is at most ``clip``."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, (clip / (norm + 1e-6)).clamp(max=1.0))
