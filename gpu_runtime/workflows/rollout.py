"""Rollout collection, as the paper's loop: a fixed policy version plays, and its episodes become a dataset.

Every control step is a row, so pictures are taken at every step; the policy still decides once per chunk.
"""

import functools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_runtime.data.recording.checks import check_schema
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import SessionSpec
from gpu_runtime.environments.slot import TryRules
from gpu_runtime.inference.errors import ServiceStopped
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.policy import Policy
from gpu_runtime.protocol.messages import LogWritten
from gpu_runtime.protocol.policy_specs import RolloutJobSpec
from gpu_runtime.protocol.schema import DatasetSchema
from gpu_runtime.training.mounted import Failure
from gpu_runtime.workflows.actor import Acting, Actor, PredictStatistics
from gpu_runtime.workflows.environment_use import UseTeller
from gpu_runtime.workflows.failures import EXPECTED, failure_from
from gpu_runtime.workflows.first_look import look
from gpu_runtime.workflows.playing import DECISIONS_MAX, Playing, Try
from gpu_runtime.workflows.ports import REDONE, EnvironmentMeter, Teller
from gpu_runtime.workflows.rollout_dataset import record_dataset, recorded_schema
from gpu_runtime.workflows.rollout_keeper import Durable, RolloutKeeper
from gpu_runtime.workflows.rollout_shelf import EpisodeShelf, RolloutEpisode
from gpu_runtime.workflows.sft import WorkloadFailed
from gpu_runtime.workflows.tour import Tour, environment_kind

_ROUNDS_PER_TOUR = 8  # episodes of each seat between two reports of use


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDataset:
    """A LeRobot v3.0 dataset in ``folder``, and what is said of it."""

    folder: Path
    manifest: dict[str, object]


@dataclass(slots=True, kw_only=True)
class RolloutWorkflow:
    """One attempt. ``acting`` names the policy slot, which must have its version, and mode ``eval``.

    ``folder`` is the attempt's own: episodes that have ended stay there, so that a resumed attempt plays on; the first
    ``parallel`` of it are redone at the platform's cost. To stop, cancel the task: nothing is held afterwards.
    """

    spec: RolloutJobSpec
    policy: Policy
    adapter_id: str
    acting: Acting
    service: InferenceService
    pool: EnvironmentPool
    tell: Teller
    meter: EnvironmentMeter
    durable: Durable
    folder: Path
    dataset: RolloutDataset | None = field(init=False, default=None)  # once it is written
    _keeper: RolloutKeeper = field(init=False)
    _predictions: PredictStatistics = field(init=False, default_factory=PredictStatistics)
    _schema: DatasetSchema | None = field(init=False, default=None)  # once an environment was looked at
    _writer: object | None = field(init=False, default=None)  # whose rows are wanted

    def __post_init__(self) -> None:
        self._keeper = RolloutKeeper(
            shelf=EpisodeShelf(self.folder / "episodes"),
            wanted=self.spec.episodes,
            only_successes=self.spec.only_successes,
            durable=self.durable,
            tell=self.tell,
            predictions=self._predictions,
        )

    @property
    def step(self) -> int:
        """Episodes of the dataset so far."""
        return len(self._keeper.chosen())

    async def run(self) -> None:
        """Play until there are enough episodes, or as many were played as may be; then write the dataset.

        Raises WorkloadFailed, ServiceStopped.
        """
        try:
            await self._run()
        except ServiceStopped:
            raise
        except EXPECTED as error:
            raise WorkloadFailed(failure_from(error)) from error
        finally:
            self._writer = None  # a thread that still writes rows stops at the next episode

    async def keep(self) -> None:
        """After ``run`` was stopped: write the dataset of the episodes there are, if there are any.

        Raises what looking at an environment raises, where this process has not done that yet.
        """
        if self.dataset is not None:
            return
        await self._keeper.begin()
        try:
            if self._keeper.chosen():
                await self._write(self._schema or await self._look(), self.folder / "kept")
        finally:
            self._writer = None

    async def _look(self) -> DatasetSchema:
        """What the rows will be, checked before minutes of simulation."""
        seed, session = self.spec.first_seed, self._session(1)
        first = await look(self.pool, session, self.policy, seed=seed, tell=self.tell, meter=self.meter)
        schema = recorded_schema(first.schema, [view.key for view in self.policy.views])
        check_schema(schema, _fps(schema))
        self._schema = schema
        return schema

    async def _run(self) -> None:
        resumed = await self._keeper.begin()
        schema = await self._look()
        if resumed:
            await self._play(self._next(self.spec.parallel), unbilled=REDONE)
        while tries := self._next(_ROUNDS_PER_TOUR * self.spec.parallel):
            await self._play(tries, unbilled=None)
        await self._write(schema, self.folder / "dataset")

    def _next(self, most: int) -> deque[Try]:
        """Planned episodes that nobody has played; none when there are enough of them, or may be no more."""
        missing = self.spec.episodes - self.step
        if missing > 0 and self.spec.only_successes:  # some will fail: every seat has something to do
            missing = max(missing, self.spec.parallel)
        unplayed = (index for index in range(self.spec.attempts) if not self._keeper.knows(index))
        return deque(self._try(index) for _, index in zip(range(min(missing, most)), unplayed, strict=False))

    def _try(self, index: int) -> Try:
        seed = self.spec.first_seed + index
        return Try(index=index, seed=seed, group=index, noise=seed * DECISIONS_MAX)

    async def _play(self, tries: deque[Try], *, unbilled: str | None) -> None:
        if not tries:
            return
        seats, keeper = min(self.spec.parallel, len(tries)), self._keeper
        work = f"rollout/{tries[0].index}"

        async def ended(playing: Playing) -> None:
            tour.losses = 0
            await keeper.ended(playing)

        tour = Tour(
            pool=self.pool,
            session=self._session(seats),
            policy=self.policy,
            actor=Actor(
                service=self.service,
                acting=replace(self.acting, unbilled=unbilled),
                session_id=f"{self.acting.slot_id}/rollout",
                statistics=self._predictions,
            ),
            executed=self.spec.executed_steps or self.policy.horizon,
            stride=1,
            use=UseTeller(meter=self.meter, work=work, step=self.step, seats=seats, reason=unbilled),
            tell=self.tell,
            on_episode=ended,
            on_lost=keeper.lost,
            on_move=keeper.moved,
        )
        await tour.play(tries)
        await keeper.solved(tour.solved)

    def _session(self, seats: int) -> SessionSpec:
        environment = self.spec.environment
        return SessionSpec(
            tenant_id=self.acting.tenant_id,
            kind=environment_kind(self.policy, environment),
            seats=seats,
            rules=TryRules(steps_max=environment.max_steps),
        )

    async def _write(self, schema: DatasetSchema, folder: Path) -> None:
        writer = self._writer = object()
        keeper, episodes = self._keeper, self._keeper.chosen()
        counts = f"{keeper.attempts} episodes were played, {keeper.successes} succeeded"
        if not episodes:
            raise WorkloadFailed(Failure(reason="no_episode_kept", message=f"{counts}: there is nothing to keep"))
        if len(episodes) < self.spec.episodes:
            text = f"{counts}: the dataset has {len(episodes)} of {self.spec.episodes} episodes"
            await self.tell(LogWritten(level="warning", message=text))
        write = functools.partial(
            record_dataset,
            folder,
            schema,
            keeper.shelf,
            episodes,
            description=self._description(episodes),
            stopped=lambda: self._writer is not writer,
        )
        frames: int = await self.durable(write)
        self.dataset = RolloutDataset(folder=folder, manifest=self._manifest(len(episodes), frames))

    def _description(self, episodes: Sequence[RolloutEpisode]) -> dict[str, object]:
        return {
            "environment": self.spec.environment.id,
            "source": "rollouts of a policy: pictures, state and executed action of every control step",
            "adapter_id": self.adapter_id,
            "policy_version": self.acting.version,
            "seeds": [episode.seed for episode in episodes],
            "success_once": [episode.success_once for episode in episodes],
        }

    def _manifest(self, episodes: int, frames: int) -> dict[str, object]:
        return {
            "episodes": episodes,
            "frames": frames,
            "successes": self._keeper.successes,
            "attempts": self._keeper.attempts,
            "policy_version": self.acting.version,
            "adapter_id": self.adapter_id,
            "environment": self.spec.environment.id,
            "dataset_name": self.spec.dataset_name,
        }


def _fps(schema: DatasetSchema) -> int:
    return round(schema.control_hz or 0)
