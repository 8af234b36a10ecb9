"""Demonstrations by a scripted expert: simulated first, filmed afterwards from the states kept.

Physics costs a tenth of a picture, so episodes that fail are never filmed, and one simulation could be filmed from
any camera. Shapes: N frames, S state dimensions, A action dimensions, K numbers of a snapshot.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gpu_runtime.data.recorder import Recorder
from gpu_runtime.environments.base import Environment
from gpu_runtime.environments.errors import CannotRestore, SimulatorError
from gpu_runtime.environments.experts import Expert

TRIES_PER_EPISODE_MAX = 10
REPEAT_TOLERANCE = 1e-4  # of any number of the state


class Outcome(StrEnum):
    """How one try ended."""

    SOLVED = "solved"  # by the expert's own actions: kept
    FAILED = "failed"  # the world ended or time was up before success
    SOLVED_AT_RESET = "solved_at_reset"  # nothing was left to demonstrate


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """One solved try, up to the first step that succeeded; row ``i`` is what was there when action ``i`` was taken."""

    seed: int
    snapshots_NK: np.ndarray
    states_NS: np.ndarray
    actions_NA: np.ndarray


class ExpertTooWeak(SimulatorError):
    """The expert solves so few tries that the recording would not end."""


class NotRepeatable(SimulatorError):
    """The same seed and actions did not lead to the same states."""


def demonstrate(environment: Environment, expert: Expert, seed: int) -> tuple[Outcome, Demonstration | None]:
    """One try from ``seed``."""
    observation = environment.reset(seed)
    if environment.succeeded():
        return Outcome.SOLVED_AT_RESET, None
    snapshots, states, actions = [], [], []
    while True:
        action = expert(environment.privileged())
        snapshots.append(environment.snapshot())
        states.append(observation.state_S)
        actions.append(action)
        result = environment.step(action)
        observation = result.observation
        if result.success:
            kept = Demonstration(
                seed=seed,
                snapshots_NK=np.stack(snapshots),
                states_NS=np.stack(states),
                actions_NA=np.stack(actions),
            )
            return Outcome.SOLVED, kept
        if result.terminated or result.truncated:
            return Outcome.FAILED, None


def demonstrations(
    environment: Environment, expert: Expert, *, episodes: int, seed: int, outcomes: dict[Outcome, int]
) -> Iterator[Demonstration]:
    """Solved tries from ``seed`` upwards until there are ``episodes``; counts every try in ``outcomes``.

    Raises ExpertTooWeak when ten times as many tries did not give enough.
    """
    kept = 0
    for attempt in range(episodes * TRIES_PER_EPISODE_MAX):
        outcome, demonstration = demonstrate(environment, expert, seed + attempt)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if demonstration is not None:
            kept += 1
            yield demonstration
        if kept == episodes:
            return
    raise ExpertTooWeak(f"the expert solved {kept} of {sum(outcomes.values())} tries; {episodes} were asked for")


def film(
    environment: Environment, demonstration: Demonstration, recorder: Recorder, on_frame: Callable[[], None]
) -> None:
    """Render every frame of one demonstration into ``recorder`` as one episode.

    A world that cannot be put back is acted out again instead. Raises NotRepeatable where that leads elsewhere.
    """
    recorder.start_episode(environment.instruction)
    rows = zip(_again(environment, demonstration), demonstration.states_NS, demonstration.actions_NA, strict=True)
    for _, state_S, action_A in rows:
        recorder.add(environment.render(), state_S, action_A)
        on_frame()
    recorder.end_episode()


def _again(environment: Environment, demonstration: Demonstration) -> Iterator[int]:
    """Put the world into the state of one frame after the other."""
    state_S = environment.reset(demonstration.seed).state_S  # what a snapshot does not hold: shapes, colours
    for index, snapshot_K in enumerate(demonstration.snapshots_NK):
        try:
            environment.restore(snapshot_K)
            yield index
            continue
        except CannotRestore:
            pass
        if not np.allclose(state_S, demonstration.states_NS[index], atol=REPEAT_TOLERANCE):
            raise NotRepeatable(f"seed {demonstration.seed}: the same actions lead elsewhere at frame {index}")
        yield index
        state_S = environment.step(demonstration.actions_NA[index]).observation.state_S


def note(
    environment: Environment, demonstration: Demonstration, recorder: Recorder, on_frame: Callable[[], None]
) -> None:
    """Write one demonstration into ``recorder``, which records no camera, as one episode; nothing is simulated."""
    recorder.start_episode(environment.instruction)
    for state_S, action_A in zip(demonstration.states_NS, demonstration.actions_NA, strict=True):
        recorder.add({}, state_S, action_A)
        on_frame()
    recorder.end_episode()
