"""Random rollouts and minibatches for property tests, and a way to show that a check catches a planted fault."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gpu_runtime.training.rl.rollout import Rollout

QUICK = settings(max_examples=60, deadline=None)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Everything random comes from ``seed``; sizes shrink."""

    seed: int
    chunks: int = 1
    envs: int = 1
    steps: int = 1
    dims: int = 1
    rows: int = 1
    auto_reset: bool = False
    ends: float = 0.2  # probability of an end at a step
    random: np.random.Generator = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "random", np.random.default_rng(self.seed))

    def numbers(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.from_numpy(self.random.normal(scale=scale, size=shape))

    def flags(self, *shape: int, share: float) -> Tensor:
        return torch.from_numpy(self.random.random(shape) < share)

    def rollout(self) -> Rollout:
        """Steps are missing at the end of some chunks; what was paid there is NaN."""
        shape = (self.chunks, self.envs, self.steps)
        count = torch.from_numpy(self.random.integers(self.steps // 2, self.steps + 1, shape[:2]))
        executed = torch.arange(self.steps) < count[..., None]
        return Rollout(
            rewards_nBC=torch.where(executed, self.numbers(*shape), torch.nan),
            terminated_nBC=self.flags(*shape, share=self.ends),
            truncated_nBC=self.flags(*shape, share=self.ends),
            executed_nBC=executed,
            auto_reset=self.auto_reset,
        )


rollout_shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**32 - 1),
    chunks=st.integers(1, 6),
    envs=st.integers(1, 6),
    steps=st.integers(1, 4),
    auto_reset=st.booleans(),
    ends=st.sampled_from([0.0, 0.1, 0.4]),
)
episode_shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**32 - 1),
    chunks=st.integers(1, 4),
    envs=st.integers(1, 9),
    steps=st.integers(1, 3),
    ends=st.sampled_from([0.0, 0.2]),
)
minibatch_shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 6),
    steps=st.integers(1, 4),
    dims=st.integers(1, 4),
)


def caught(check: Callable[[Any], None], examples: st.SearchStrategy[Any]) -> None:
    """Run a property over many examples and demand that one of them breaks it."""

    @settings(
        database=None, deadline=None, derandomize=True, max_examples=200, phases=[Phase.generate],
        report_multiple_bugs=False,
    )  # fmt: skip
    @given(examples)
    def run(example: Any) -> None:
        check(example)

    with pytest.raises(AssertionError):
        run()
