"""Many worlds of one environment inside a worker: for whoever calls, as if each had a slot of its own.

Shapes: N worlds of the environment; M of them called, C actions of a chunk, A action dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpu_runtime.environments.base import Proprioception
from gpu_runtime.environments.slot import Chunk, Try, TryRules, observation_of, reset_answer
from gpu_runtime.environments.vector import VectorEnvironment
from gpu_runtime.protocol.schema import DatasetSchema


class VectorSlots:
    """Answers in the maps that ``results`` reads. ``schema`` names the cameras that are rendered, perhaps none.

    A world whose try ends inside a chunk rests from then on: it is shown as it was at its end.
    """

    def __init__(self, environment: VectorEnvironment, schema: DatasetSchema) -> None:
        self.rules = TryRules()
        self._environment, self._schema = environment, schema
        self._tries = [Try() for _ in range(environment.count)]

    def warm_up(self) -> None:
        """Let the first picture, which compiles shaders for seconds, be on nobody's clock."""
        self.reset([(world, 0) for world in range(self._environment.count)])

    def reset(self, seeds: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """Start new tries: (world, seed) each."""
        started = self._environment.reset(dict(seeds))
        for world in started:
            self._tries[world] = Try()
        worlds = [world for world, _ in seeds]
        solved_N, snapshots_NK = self._environment.succeeded(), self._environment.snapshots()
        return [
            reset_answer(observation, solved=bool(solved_N[world]), snapshot_K=snapshots_NK[world])
            for world, observation in zip(worlds, self._observations(worlds, started), strict=True)
        ]

    def step(self, worlds: Sequence[int], actions_MCA: np.ndarray) -> list[dict[str, Any]]:
        """Take the actions of every world one after the other until its try ends."""
        chunks = {world: Chunk(self._tries[world], self.rules, actions_MCA.shape[1]) for world in worlds}
        last: dict[int, Proprioception] = {}
        actions_NA = np.zeros((self._environment.count, actions_MCA.shape[2]), np.float32)
        for actions_MA in actions_MCA.swapaxes(0, 1):
            going_on = [world for world, chunk in chunks.items() if not chunk.ended]
            if not going_on:
                break
            actions_NA[list(worlds)] = actions_MA
            active_N = np.isin(np.arange(len(actions_NA)), going_on)
            for world, result in self._environment.step(actions_NA, active_N).items():
                chunks[world].take(result)
                last[world] = result.observation
        observations = self._observations(worlds, last)
        return [chunk.answer(shown) for chunk, shown in zip(chunks.values(), observations, strict=True)]

    def _observations(self, worlds: Sequence[int], told: Mapping[int, Proprioception]) -> list[dict[str, Any]]:
        keys = [camera.key for camera in self._schema.cameras]
        images = self._environment.render(worlds, keys) if keys else {}
        words = self._environment.instruction
        return [
            observation_of(self._schema, {key: images[key][row] for key in keys}, told[world].state_S, words)
            for row, world in enumerate(worlds)
        ]

    def close(self) -> None:
        """Free the simulator."""
        self._environment.close()
