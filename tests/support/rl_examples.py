"""Random rollouts and minibatches for property tests, and a way to show that a check catches a planted fault."""

import math
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
from tests.support import rl_reference as reference

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


LEVELS = ["token", "action", "chunk"]
minibatches = st.tuples(minibatch_shapes, st.sampled_from(LEVELS), st.sampled_from([None, 1.5]))
leveled = st.tuples(minibatch_shapes, st.sampled_from(LEVELS))


class Minibatch:
    """Log-probabilities [N, C, A], an advantage per chunk, and a mask of steps or of dims; behind it lies NaN."""

    def __init__(self, shape: Shape) -> None:
        size = (shape.rows, shape.steps, shape.dims)
        self.mask = shape.flags(*size[: 2 + shape.seed % 2], share=0.7)
        self.mask[0, 0] = True
        self.advantage = shape.numbers(shape.rows)
        self.log_prob = self._masked(shape.numbers(*size, scale=0.5)).requires_grad_()
        self.old, self.behaviour = (self._masked(shape.numbers(*size, scale=0.5)) for _ in range(2))

    def _masked(self, values: torch.Tensor) -> torch.Tensor:
        self.valid = (self.mask if self.mask.dim() == 3 else self.mask[..., None]).expand(values.shape)
        return torch.where(self.valid, values, torch.nan)

    def rows(self, level: str, *parts: torch.Tensor) -> list[tuple[float, ...]]:
        """(advantage, log-probability of each part) of every element that has a ratio of its own."""
        found = [reference.elements(level, part.tolist(), self.valid.tolist()) for part in parts]
        return [(float(self.advantage[same[0][0]]), *(one[1] for one in same)) for same in zip(*found, strict=True)]


def agree(found: torch.Tensor | float, expected: float) -> None:
    number = found.item() if isinstance(found, torch.Tensor) else found
    assert number == pytest.approx(expected, rel=1e-5, abs=1e-6)


def close(found: torch.Tensor, expected: object) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.double), rtol=1e-5, atol=1e-6)


def valid_of(rollout: Rollout) -> list:
    flags = (rollout.terminated_nBC, rollout.truncated_nBC, rollout.executed_nBC)
    return reference.valid_steps(*(flag.tolist() for flag in flags), rollout.auto_reset)


def returns_of(rollout: Rollout) -> tuple[list[float], list[bool]]:
    """Return of every environment's one episode, and whether it had a step at all."""
    valid, rewards = valid_of(rollout), rollout.rewards_nBC.tolist()
    chunks, envs, steps = rollout.rewards_nBC.shape
    places = [(n, c) for n in range(chunks) for c in range(steps)]
    returns = [math.fsum(rewards[n][b][c] for n, c in places if valid[n][b][c]) for b in range(envs)]
    return returns, [any(valid[n][b][c] for n, c in places) for b in range(envs)]


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
