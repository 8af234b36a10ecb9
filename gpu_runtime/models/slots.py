"""A tenant's private place on a shared base: policy, optimizer, schedule, randomness and version.

Shapes: B samples, H horizon, A action dims, S state dims.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from gpu_runtime.data.samples import SampleBatch
from gpu_runtime.models.action_error import ActionError
from gpu_runtime.models.errors import BatchMismatch, NonFiniteGradient, NonFiniteLoss
from gpu_runtime.models.heads.base import Features, HeadInputs, LossParts
from gpu_runtime.models.lora.adapter import AdaptableBase, LoraAdapter
from gpu_runtime.models.optimization import TrainedWeights, learning_rate
from gpu_runtime.models.policy import Policy
from gpu_runtime.models.statistics_guard import StatisticsGuard
from gpu_runtime.protocol.schema import DatasetSchema, DatasetStatistics
from gpu_runtime.protocol.specs import SftJobSpec

CONSUMED_KEPT = 4096  # ids of the newest partitions in the weights; steps are in order, so no older one can return
TRAINING_STREAM = 0x5F1  # keeps training noise apart from the numbers that initialised the weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A batch as its head takes it, and the way back: the generator's state before anything was drawn."""

    partition_id: str
    batch: SampleBatch
    inputs: HeadInputs
    random_state: torch.Tensor


class Slot:
    """Trains one policy. A step happens completely or not at all, and depends on nobody else in the process."""

    def __init__(self, policy: Policy) -> None:
        spec = policy.spec
        self.policy = policy
        self.weights = TrainedWeights.of(spec.optimizer, policy.head, policy.lora)
        self.generator = torch.Generator().manual_seed(spec.training.seed ^ (TRAINING_STREAM << 32))
        self.step = 0
        self.consumed: deque[str] = deque(maxlen=CONSUMED_KEPT)
        self.action_guard = StatisticsGuard(policy.actions)
        self.state_guard = None if policy.states is None else StatisticsGuard(policy.states)

    @classmethod
    def create(
        cls,
        *,
        spec: SftJobSpec,
        schema: DatasetSchema,
        statistics: DatasetStatistics,
        tap_width: Callable[[str], int],
        device: torch.device | str = "cpu",
        base: AdaptableBase | None = None,
    ) -> "Slot":
        """A fresh slot at policy version 0; ``tap_width`` is the backbone's feature width at a tap.

        ``base``: the backbone itself, which a slot with an adapter needs.
        """
        return cls(
            Policy(spec=spec, schema=schema, statistics=statistics, tap_width=tap_width, device=device, base=base)
        )

    @property
    def spec(self) -> SftJobSpec:
        return self.policy.spec

    @property
    def kind(self) -> Literal["sft"]:
        return self.spec.kind

    @property
    def seed(self) -> int:
        return self.spec.training.seed

    @property
    def partitions(self) -> int:
        """How many partitions are in the weights: one for each step."""
        return self.step

    @property
    def policy_version(self) -> int:
        """Count of applied updates."""
        return self.step

    @property
    def taps(self) -> frozenset[str]:
        """Backbone outputs this slot reads."""
        return self.policy.taps

    @property
    def query_tokens(self) -> int:
        """Action queries its prompts end with."""
        return self.policy.query_tokens

    @property
    def lora(self) -> LoraAdapter | None:
        """The updates that its features are made with; None: the base as it is."""
        return self.policy.lora

    def named_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Every trained parameter: the head's, then ``lora.*``."""
        return self.weights.parameters()

    @property
    def needs_fit(self) -> bool:
        """True until ``fit`` has seen the tenant's own frames."""
        return self.policy.head.needs_fit

    @property
    def fit_frames(self) -> int:
        """Frames ``fit`` wants in its one batch; 0 for a head that fits nothing."""
        return self.policy.head.fit_frames

    def fit(self, features: Sequence[Features], batch: SampleBatch) -> None:
        """Learn feature statistics from one batch of own frames. Raises ForeignStatistics, FeatureMismatch."""
        self._same_length(features, batch)
        self._observe(batch)
        with torch.no_grad():
            self.policy.head.fit(features)

    def train_step(self, features: Sequence[Features], batch: SampleBatch, partition_id: str) -> dict[str, float]:
        """One update on one partition; returns loss, its parts, gradient norm and learning rate.

        The phases below in a row. Raises NonFiniteLoss, NonFiniteGradient, ForeignStatistics or a mismatch; weights,
        optimizer, random state and counters are then exactly as before.
        """
        prepared = self.prepare(features, batch, partition_id)
        with self.undone_on_error(prepared):
            loss = self.loss(prepared)
            loss.total.backward()
        return self.finish(prepared, loss)

    def prepare(self, features: Sequence[Features], batch: SampleBatch, partition_id: str) -> Prepared:
        """Check and normalise a batch and draw its randomness. It must end in ``finish`` or ``abandon``.

        Raises a mismatch or NotFitted; nothing is changed then.
        """
        self._same_length(features, batch)
        random_state = self.generator.get_state()
        try:
            inputs = self.policy.head.inputs(
                features,
                self.policy.model_state(batch.state_BS),
                self.policy.model_actions(batch.actions_BHA),
                torch.as_tensor(batch.mask_BH, device=self.policy.device),
                self.generator,
            )
        except BaseException:
            self.generator.set_state(random_state)
            raise
        return Prepared(partition_id=partition_id, batch=batch, inputs=inputs, random_state=random_state)

    def loss(self, prepared: Prepared) -> LossParts:
        """The differentiable loss; as often as one likes, always the same. The caller calls ``backward``."""
        return self.policy.head.loss_of(prepared.inputs)

    def finish(self, prepared: Prepared, loss: LossParts) -> dict[str, float]:
        """Check loss and gradients, clip, update, count; returns the step's metrics. The gradients must be there.

        Raises NonFiniteLoss, NonFiniteGradient or ForeignStatistics; everything is then as before ``prepare``.
        """
        rate = learning_rate(self.spec.optimizer, step=self.step, total_steps=self.spec.training.steps)
        with self.undone_on_error(prepared):
            total = float(loss.total.detach())
            if not math.isfinite(total):
                raise NonFiniteLoss(f"loss is {total} {self._where(prepared.partition_id)}")
            norm = self._gradient_norm(prepared.partition_id)
            outside = self._observe(prepared.batch)
        self.weights.update(norm=norm, rate=rate, clip=self.spec.optimizer.grad_clip)
        self.step += 1
        self.consumed.append(prepared.partition_id)
        parts = {f"loss/{name}": float(value.detach()) for name, value in loss.parts.items()}
        metrics = {"loss": total, "grad_norm": float(norm), "learning_rate": rate, "out_of_range": outside}
        return metrics | parts

    def abandon(self, prepared: Prepared) -> None:
        """Give a prepared step up: no gradient and no advanced random state are left."""
        self.generator.set_state(prepared.random_state)
        self.weights.clear()

    @contextmanager
    def undone_on_error(self, prepared: Prepared) -> Iterator[None]:
        """Whatever fails inside gives the step up."""
        try:
            yield
        except BaseException:
            self.abandon(prepared)
            raise

    def evaluate(self, features: Sequence[Features], batch: SampleBatch) -> ActionError:
        """Action error in real units on held-out samples; partitions of an evaluation are added with ``+``."""
        self._same_length(features, batch)
        return self.policy.evaluate(features, batch)

    def act(self, features: Sequence[Features], state_BS: np.ndarray | None, *, seed: int) -> np.ndarray:
        """Action chunks in real units, float32 [B, H, A]; ``seed`` determines the noise."""
        return self.policy.act(features, state_BS, seed=seed)

    def _gradient_norm(self, partition_id: str) -> torch.Tensor:
        try:
            return self.weights.gradient_norm()
        except NonFiniteGradient as error:
            raise NonFiniteGradient(f"{error} {self._where(partition_id)}") from None

    def _where(self, partition_id: str) -> str:
        return f"at step {self.step} (policy version {self.policy_version}, partition {partition_id})"

    def _observe(self, batch: SampleBatch) -> float:
        """Largest share of a dimension's values outside the statistics. Raises ForeignStatistics."""
        saved = self.state_guard.to_json() if self.state_guard is not None else None
        outside = 0.0
        if self.state_guard is not None and batch.state_BS is not None:
            outside = self.state_guard.observe(batch.state_BS, samples=len(batch))
        try:
            return max(outside, self.action_guard.observe(batch.actions_BHA[batch.mask_BH], samples=len(batch)))
        except BaseException:
            if self.state_guard is not None and saved is not None:
                self.state_guard.restore(saved)
            raise

    def _same_length(self, features: Sequence[Features], batch: SampleBatch) -> None:
        if len(features) != len(batch):
            raise BatchMismatch(f"{len(features)} features for {len(batch)} samples")
