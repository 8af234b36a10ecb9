"""Which starts a training batch is played from: a pure function of the job's seed and the step it is for."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_runtime.protocol.algorithms import group_size_of
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.workflows.playing import DECISIONS_MAX, Try

TRAINING_SEEDS = (1 << 20, 1 << 31)
"""Evaluations and datasets take theirs from below, so that training never sees a start it is judged by."""
_NOISE_END = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class RlPlan:
    """``episodes`` of a batch in groups of ``group_size`` that share one start."""

    seed: int
    episodes: int
    group_size: int

    @classmethod
    def of(cls, spec: RlJobSpec) -> "RlPlan":
        return cls(
            seed=spec.training.seed, episodes=spec.collection.episodes, group_size=group_size_of(spec.algorithm)
        )

    def tries(self, step: int) -> deque[Try]:
        """The batch that makes policy version ``step``; members of a group stand together."""
        numbers = np.random.default_rng([self.seed, step])
        groups = self.episodes // self.group_size
        starts: list[int] = []
        while len(starts) < groups:
            start = int(numbers.integers(*TRAINING_SEEDS))
            if start not in starts:
                starts.append(start)
        noises = numbers.integers(0, _NOISE_END // DECISIONS_MAX, self.episodes)
        return deque(
            Try(
                index=at,
                seed=starts[at // self.group_size],
                group=at // self.group_size,
                noise=int(noise) * DECISIONS_MAX,
            )
            for at, noise in enumerate(noises)
        )


def again(tries: Sequence[Try], losses: int) -> list[Try]:
    """The same starts with other noise: the actions of a lost try shall not repeat themselves."""
    moved = losses * (_NOISE_END // 7 // DECISIONS_MAX) * DECISIONS_MAX
    return [replace(planned, noise=(planned.noise + moved) % _NOISE_END) for planned in tries]
