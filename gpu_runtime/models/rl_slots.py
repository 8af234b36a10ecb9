"""A tenant's private place for reinforcement learning: actor and critic, optimizer, schedule, randomness and version.

A step (one version to the next) is several updates: epochs over minibatches of one batch of chunks.
"""

import copy
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gpu_runtime.models.actor_critic import ActorCritic
from gpu_runtime.models.errors import NonFiniteGradient, NonFiniteLoss
from gpu_runtime.models.heads.base import Features
from gpu_runtime.models.lora.adapter import LoraAdapter
from gpu_runtime.models.lora.identity import freeze_adapter
from gpu_runtime.models.observations import Observations
from gpu_runtime.models.optimization import clip_gradients, gradient_norm, learning_rate
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.slots import CONSUMED_KEPT
from gpu_runtime.protocol.exploration import ActorCriticSpec
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.protocol.specs import OptimizerSpec

SHUFFLE_STREAM = 0x5B4


class RlSlot:
    """Trains one actor and its critic. A step happens completely or not at all."""

    kind: Literal["rl"] = "rl"

    def __init__(
        self,
        policy: Policy,
        spec: ActorCriticSpec,
        *,
        optimizer: OptimizerSpec,
        total_steps: int,
        seed: int,
        job: RlJobSpec | None = None,
    ) -> None:
        """Start from ``policy`` as it is; its weights change in place. The learning rate follows the steps."""
        self.policy, self.spec, self.optimizer_spec, self.job = policy, spec, optimizer, job
        self.total_steps, self.seed = total_steps, seed
        if policy.lora is not None:
            freeze_adapter(policy.lora)  # heads and critic learn from rewards, the features stay what they are
        self.models = ActorCritic(policy, spec, seed=seed)
        self.optimizer = torch.optim.AdamW(
            _groups(self.models, optimizer), betas=optimizer.betas, eps=optimizer.eps, fused=True
        )
        self.generator = torch.Generator().manual_seed(seed ^ (SHUFFLE_STREAM << 32))
        self.step = self.updates = self.partitions = 0  # ``partitions``: how many are in the weights
        self.consumed: deque[str] = deque(maxlen=CONSUMED_KEPT)
        self.observed = Observations(images=(), instructions=(), state_NS=None)  # a few of the last batch, to be shown

    @classmethod
    def create(cls, policy: Policy, job: RlJobSpec) -> "RlSlot":
        """A fresh slot at policy version 0. Raises HeadConfigurationError for exploration that does not apply."""
        return cls(
            policy,
            job.actor_critic,
            optimizer=job.optimizer,
            total_steps=job.total_steps,
            seed=job.training.seed,
            job=job,
        )

    @property
    def policy_version(self) -> int:
        """Count of completed steps."""
        return self.step

    @property
    def taps(self) -> frozenset[str]:
        """Backbone outputs this slot reads; the critic reads what the head reads."""
        return self.policy.taps

    @property
    def query_tokens(self) -> int:
        """Action queries its prompts end with."""
        return self.policy.query_tokens

    @property
    def lora(self) -> LoraAdapter | None:
        """The frozen updates that its features are made with; None: the base as it is."""
        return self.policy.lora

    @property
    def needs_fit(self) -> bool:
        """True until ``fit`` has seen the tenant's own frames."""
        return self.models.critic is not None and self.models.critic.needs_fit

    def fit(self, features: Sequence[Features]) -> None:
        """Learn the critic's feature statistics from own frames."""
        if self.models.critic is not None:
            with torch.no_grad():
                self.models.critic.fit(features)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Every trained parameter: ``actor.head.*``, ``actor.*`` (exploration) and ``critic.*``."""
        named = {f"actor.{name}": p for name, p in self.models.actor.named_parameters()}
        if self.models.critic is not None:
            named |= {f"critic.{name}": p for name, p in self.models.critic.named_parameters()}
        return named

    @contextmanager
    def whole_step(self, partition_ids: Sequence[str]) -> Iterator[None]:
        """All updates inside make one step. If anything fails, everything is as it was before the first of them."""
        before = self._state()
        try:
            yield
        except BaseException:
            self._restore(before)
            raise
        self.step += 1
        self.partitions += len(partition_ids)
        self.consumed.extend(partition_ids)

    def minibatches(self, samples: int, size: int) -> list[Tensor]:
        """All samples in a fresh order of the tenant's own, as index tensors of at most ``size``."""
        return list(torch.randperm(samples, generator=self.generator).split(size))

    def apply(self, loss: Tensor) -> dict[str, float]:
        """One update. Actor and critic are clipped each by its own norm. Raises NonFiniteLoss, NonFiniteGradient."""
        if not bool(torch.isfinite(loss)):
            raise NonFiniteLoss(f"loss is {float(loss.detach())} {self._where()}")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        try:
            norms = {part: gradient_norm(named.items()) for part, named in self._with_gradient().items()}
        except NonFiniteGradient as error:
            self.optimizer.zero_grad(set_to_none=True)
            raise NonFiniteGradient(f"{error} {self._where()}") from None
        for part, norm in norms.items():
            clip_gradients(self._with_gradient()[part].values(), norm=norm, clip=self.optimizer_spec.grad_clip)
        rate = learning_rate(self.optimizer_spec, step=self.step, total_steps=self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * rate / self.optimizer_spec.lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.models.actor.constrain()
        self.updates += 1
        return {f"grad_norm/{part}": float(norm) for part, norm in norms.items()} | {"learning_rate": rate}

    def _with_gradient(self) -> dict[str, dict[str, nn.Parameter]]:
        """Parameters that the last backward reached, by ``actor`` and ``critic``; a part without any is left out."""
        parts: dict[str, dict[str, nn.Parameter]] = {}
        for name, parameter in self.named_parameters().items():
            if parameter.grad is not None:
                parts.setdefault(name.partition(".")[0], {})[name] = parameter
        return parts

    def _where(self) -> str:
        return f"at step {self.step} (policy version {self.policy_version}, update {self.updates})"

    def _state(self) -> dict[str, Any]:
        return {
            "parameters": {name: p.detach().clone() for name, p in self.named_parameters().items()},
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "random": self.generator.get_state(),
            "updates": self.updates,
            "needs_fit": self.needs_fit,
        }

    @torch.no_grad()
    def _restore(self, state: dict[str, Any]) -> None:
        for name, parameter in self.named_parameters().items():
            parameter.copy_(state["parameters"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.optimizer.zero_grad(set_to_none=True)
        self.generator.set_state(state["random"])
        self.updates = state["updates"]
        if state["needs_fit"] and self.models.critic is not None:
            self.models.critic.allocate({"tokens": 0})


def _groups(models: ActorCritic, spec: OptimizerSpec) -> list[dict[str, Any]]:
    """Parameter groups by owner; weight decay on matrices only, and never on what controls exploration."""
    head, exploration = list(models.policy.head.parameters()), list(models.actor.exploration_parameters().values())
    groups = [
        {"name": "head", "params": [p for p in head if p.ndim >= 2], "weight_decay": spec.weight_decay},
        {"name": "head", "params": [p for p in head if p.ndim < 2], "weight_decay": 0.0},
        {"name": "exploration", "params": exploration, "weight_decay": 0.0},
    ]
    for group in groups:
        group["base_lr"] = spec.lr
    if models.critic is not None and models.spec.value is not None:
        critic, rate = list(models.critic.parameters()), models.spec.value.lr
        groups += [
            {"name": "value", "params": [p for p in critic if p.ndim >= 2], "weight_decay": spec.weight_decay},
            {"name": "value", "params": [p for p in critic if p.ndim < 2], "weight_decay": 0.0},
        ]
        for group in groups[-2:]:
            group["base_lr"] = rate
    return [group | {"lr": group["base_lr"]} for group in groups if group["params"]]
