"""One try while it is played, and what it leaves: decisions, what they paid, how it ended.

Shapes: S state dimensions, C executed steps of a chunk, H horizon, A action dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.environments.results import ChunkResult, Observation, Reset
from gpu_runtime.inference.messages import PredictReply
from gpu_runtime.protocol.environment_spec import RewardSpec
from gpu_runtime.training.rl.experience import Decision, Episode
from gpu_runtime.workflows.reward import shaped_rewards

DECISIONS_MAX = 1 << 20
"""Of one episode, so that no two decisions share their noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One planned episode. ``noise`` is the seed of its first decision; those that follow count up from it."""

    index: int  # in the plan
    seed: int
    group: int
    noise: int


@dataclass(slots=True, kw_only=True)
class Taken:
    """One decision as it was taken; ``raw`` is what its executed steps paid, before any shaping."""

    feature: VLAFeature
    state_S: np.ndarray | None
    passed: float | None
    handle: str
    trace: Mapping[str, np.ndarray]
    value: float | None
    version: int
    raw: list[float] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Playing:
    """A try in one environment of a session. ``max_steps`` of the try, if there is a limit."""

    planned: Try
    start: Reset
    observation: Observation
    max_steps: int | None
    taken: list[Taken] = field(default_factory=list)
    steps: int = 0
    last: ChunkResult | None = None  # of the newest call
    final_value: float | None = None

    @property
    def ended(self) -> bool:
        return self.last is not None and self.last.ended

    @property
    def passed(self) -> float | None:
        """Share of the step limit that is over; None without a limit."""
        return None if self.max_steps is None else min(1.0, self.steps / self.max_steps)

    @property
    def noise(self) -> int:
        """Seed of the next decision."""
        return self.planned.noise + len(self.taken)

    def decided(self, reply: PredictReply, row: int, feature: VLAFeature, state_S: np.ndarray | None) -> None:
        """Take row ``row`` of an answer as the next decision."""
        trace = {} if reply.trace is None else {name: part[row].numpy().copy() for name, part in reply.trace.items()}
        self.taken.append(
            Taken(
                feature=feature,
                state_S=None if state_S is None else state_S.copy(),
                passed=self.passed,
                handle=reply.handles[row] if reply.handles else "",
                trace=trace,
                value=None if reply.value is None else float(reply.value[row]),
                version=reply.policy_version,
            )
        )

    def moved(self, result: ChunkResult) -> None:
        """Some steps of the newest decision were executed."""
        self.taken[-1].raw += result.rewards_C[: result.executed].tolist()
        self.steps += result.executed
        self.observation, self.last = result.observation, result

    def episode(self, reward: RewardSpec, *, chunk: int, told_progress: bool) -> Episode:
        """The ended try as training wants it. Raises NoStepLimit."""
        assert self.last is not None, "it has ended"
        raw = [np.array(taken.raw, np.float32) for taken in self.taken]
        rewards = shaped_rewards(
            reward, raw, chunk=chunk, success_step=self.last.success_step, max_steps=self.max_steps
        )
        return Episode(
            seed=self.planned.seed,
            group=self.planned.group,
            decisions=tuple(
                _decision(taken, rewards_C, told_progress)
                for taken, rewards_C in zip(self.taken, rewards, strict=True)
            ),
            terminated=self.last.terminated,
            truncated=self.last.truncated,
            success_once=self.last.success_once,
            success_at_end=self.last.success,
            env_return=float(sum(float(part.sum(dtype=np.float64)) for part in raw)),
            steps=self.steps,
            final_value=self.final_value,
            initial_state=self.start.initial_state,
        )


def _decision(taken: Taken, rewards_C: np.ndarray, told_progress: bool) -> Decision:
    return Decision(
        feature=taken.feature,
        state_S=taken.state_S,
        handle=taken.handle,
        trace=taken.trace,
        value=taken.value,
        progress=taken.passed if told_progress else None,
        version=taken.version,
        rewards_C=rewards_C,
        executed=len(taken.raw),
    )
