"""RL formulas written again, slowly: plain Python loops over nested lists, from the definitions, not from the code.

Indices: n chunk, b environment, c step of a chunk, a action dim, i row of a minibatch.
"""

import math
from collections.abc import Sequence
from typing import Any

Nested = Any  # lists of lists of numbers


def valid_steps(terminated: Nested, truncated: Nested, executed: Nested, auto_reset: bool) -> Nested:
    """Walk every environment through time and note which steps belong to an episode."""
    chunks, envs, steps = len(terminated), len(terminated[0]), len(terminated[0][0])
    valid = [[[False] * steps for _ in range(envs)] for _ in range(chunks)]
    for b in range(envs):
        over = False
        for n in range(chunks):
            if auto_reset:
                over = False
            for c in range(steps):
                if executed[n][b][c] and not over:
                    valid[n][b][c] = True
                    over = terminated[n][b][c] or truncated[n][b][c]
    return valid


def gae(
    transitions: Sequence[tuple[float, float, bool, float]], next_value: float, gamma: float, lam: float
) -> list[float]:
    """Of one environment, forwards: A_t = sum_k (gamma lambda)^k d_{t+k}, up to the first end.

    A transition is (reward, value, ended, value to bootstrap from where it ended).
    """
    advantages = []
    for t in range(len(transitions)):
        total, factor = 0.0, 1.0
        for k in range(t, len(transitions)):
            reward, value, ended, bootstrap = transitions[k]
            if ended:
                ahead = bootstrap
            elif k + 1 < len(transitions):
                ahead = transitions[k + 1][1]
            else:
                ahead = next_value
            total += factor * (reward + gamma * ahead - value)
            if ended:
                break
            factor *= gamma * lam
        advantages.append(total)
    return advantages


def transitions_of(
    b: int, *, rewards: Nested, values: Nested, final_values: Nested, terminated: Nested, truncated: Nested,
    valid: Nested, always: bool, by_chunk: bool,
) -> tuple[list[tuple[float, float, bool, float]], list[tuple[int, ...]]]:  # fmt: skip
    """Transitions of one environment and where in the rollout each came from; steps nobody took are not there."""
    found, places = [], []
    for n in range(len(rewards)):
        chunk_reward, chunk_end, chunk_bootstrap, taken = 0.0, False, 0.0, False
        for c in range(len(rewards[n][b])):
            if not valid[n][b][c]:
                continue
            ended = terminated[n][b][c] or truncated[n][b][c]
            bootstrap = final_values[n][b] if ended and (always or not terminated[n][b][c]) else 0.0
            if not by_chunk:
                found.append((rewards[n][b][c], values[n][b][c], ended, bootstrap))
                places.append((n, b, c))
            chunk_reward, taken = chunk_reward + rewards[n][b][c], True
            if ended:
                chunk_end, chunk_bootstrap = True, bootstrap
        if by_chunk and taken:
            found.append((chunk_reward, values[n][b], chunk_end, chunk_bootstrap))
            places.append((n, b))
    return found, places


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def unbiased_std(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.sqrt(math.fsum((x - centre) ** 2 for x in values) / (len(values) - 1))


def variance(values: Sequence[float]) -> float:
    centre = mean(values)
    return mean([(x - centre) ** 2 for x in values])


def group_advantages(returns: Sequence[float], ids: Sequence[int], epsilon: float) -> list[float]:
    advantages = []
    for score, own in zip(returns, ids, strict=True):
        group = [other for other, label in zip(returns, ids, strict=True) if label == own]
        alike = all(other == group[0] for other in group)
        advantages.append(0.0 if alike else (score - mean(group)) / (unbiased_std(group) + epsilon))
    return advantages


def elements(level: str, log_prob: Nested, mask: Nested) -> list[tuple[int, float]]:
    """(row, log-probability) of everything that has a ratio of its own; ``mask`` is of single action dims."""
    found: list[tuple[int, float]] = []
    for i, row in enumerate(log_prob):
        steps = []
        for c, step in enumerate(row):
            kept = [x for a, x in enumerate(step) if mask[i][c][a]]
            if kept:
                steps.append(kept)
        if level == "chunk" and steps:
            found.append((i, sum(sum(kept) for kept in steps)))
        if level == "action":
            found += [(i, sum(kept)) for kept in steps]
        if level == "token":
            found += [(i, x) for kept in steps for x in kept]
    return found


def clipped_objective(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> float:
    held = min(max(ratio, 1 - low), 1 + high)
    loss = max(-advantage * ratio, -advantage * held)
    if dual is not None and advantage < 0:
        loss = min(loss, dual * -advantage)
    return loss


def is_clipped(ratio: float, advantage: float, low: float, high: float) -> bool:
    return (advantage > 0 and ratio > 1 + high) or (advantage < 0 and ratio < 1 - low)


def huber(error: float, delta: float) -> float:
    return error * error / 2 if abs(error) <= delta else delta * (abs(error) - delta / 2)


def value_objective(value: float, old: float, target: float, clip: float | None, delta: float) -> float:
    loss = huber(value - target, delta)
    if clip is None:
        return loss
    held = old + min(max(value - old, -clip), clip)
    return max(loss, huber(held - target, delta))


def k3(log_ratio: float) -> float:
    return math.exp(log_ratio) - 1 - log_ratio
