"""What an episode pays in training, from what its environment paid: a pure function of the whole episode.

    dense difference   r_t - r_{t-1}, and nothing for the first step: what the start is worth, nobody says
    success            once, at the first successful step t:  success + early_success (1 - t / T)
    per_chunk          at the first step of every decision

Shapes: C steps of a chunk.
"""

from collections.abc import Sequence

import numpy as np

from gpu_runtime.protocol.environment_spec import RewardSpec


class NoStepLimit(ValueError):
    """A reward or a critic counts in shares of a step limit, and nothing cuts these tries off."""

    code = "no_step_limit"


def shaped_rewards(
    spec: RewardSpec, raw: Sequence[np.ndarray], *, chunk: int, success_step: int, max_steps: int | None
) -> list[np.ndarray]:
    """Rewards of every decision, float32 [C], zero behind the executed steps.

    ``raw``: what each decision's executed steps paid, at most C numbers each. ``success_step`` counts the steps of
    the episode up to the first successful one, 0 if none was. Raises NoStepLimit.
    """
    paid = _dense(spec, np.concatenate([np.asarray(part, np.float64) for part in raw]))
    if success_step:
        paid[success_step - 1] += spec.success + _early(spec, success_step, max_steps)
    ends = np.cumsum([len(part) for part in raw])
    rewards = []
    for part in np.split(paid, ends[:-1]):
        part[0] += spec.per_chunk
        rewards.append(np.pad(part, (0, chunk - len(part))).astype(np.float32))
    return rewards


def _dense(spec: RewardSpec, raw_T: np.ndarray) -> np.ndarray:
    if spec.dense == "raw":
        return raw_T.copy()
    if spec.dense == "difference":
        return np.diff(raw_T, prepend=raw_T[:1])
    return np.zeros_like(raw_T)


def _early(spec: RewardSpec, success_step: int, max_steps: int | None) -> float:
    if not spec.early_success:
        return 0.0
    if max_steps is None:
        raise NoStepLimit("reward.early_success needs a step limit: set environment.max_steps")
    return spec.early_success * (1 - success_step / max_steps)
