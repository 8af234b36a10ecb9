"""Evaluation of one policy version in its environment, as the paper's loop: reset, predict, step, and so on.

Read-only: the version is pinned, nothing is trained. Episodes run side by side, each in an environment process of its
own, so that predictions meet in one forward and a lost environment costs one episode. Shapes: C executed steps of a
chunk, A action dimensions.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.environments.base import StateKind
from gpu_runtime.environments.errors import EnvironmentLost, SimulatorError
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.environments.slot import TryRules
from gpu_runtime.inference.errors import InferenceError, ServiceStopped
from gpu_runtime.inference.messages import PredictReply, PredictRequest
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.policy import Policy
from gpu_runtime.scheduler.errors import InferenceQueueFull, SchedulerError
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol, package_versions
from gpu_runtime.workflows.evaluation_result import EpisodeRecord, EvaluationResult
from gpu_runtime.workflows.evaluation_trial import Trial
from gpu_runtime.workflows.evaluation_videos import Film, VideoShelf
from gpu_runtime.workflows.policy_fit import PolicyFit, kind_for

_DECISIONS_MAX = 1 << 20  # of one episode, so that no two decisions share their noise
_QUEUE_FULL_S = 0.05


class EvaluationRefused(ValueError):
    """The evaluation was asked for something that the policy cannot do; nothing has run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """Whose policy slot it is, and who pays for the predictions."""

    tenant_id: str
    job_id: str
    slot_id: str
    attempt: int = 1


def plan(
    policy: Policy,
    *,
    environment: str,
    seeds: tuple[int, ...],
    adapter_id: str,
    policy_version: int,
    state: StateKind = StateKind.PROPRIOCEPTION,
    max_steps: int | None = None,
    executed_steps: int | None = None,
    goes_on_after_success: bool = False,
) -> EvaluationProtocol:
    """The protocol for this policy; ``executed_steps``: None for its whole chunk. Raises EvaluationRefused."""
    executed = policy.horizon if executed_steps is None else executed_steps
    if not 1 <= executed <= policy.horizon:
        raise EvaluationRefused(f"execute: {executed}, allowed: 1 to {policy.horizon}, the policy's chunk")
    if len(set(seeds)) != len(seeds):
        raise EvaluationRefused("seeds: some are there twice, allowed: each once")
    kind = kind_for(policy, environment, state)
    assert kind.cameras is not None
    return EvaluationProtocol(
        environment=environment,
        state=state,
        cameras=kind.cameras,
        render_size=kind.size,
        image_size=policy.spec.dataset.image_size,
        seeds=seeds,
        max_steps=max_steps,
        executed_steps=executed,
        goes_on_after_success=goes_on_after_success,
        adapter_id=adapter_id,
        policy_version=policy_version,
        packages=package_versions(environment),
    )


@dataclass(slots=True, kw_only=True)
class EvaluationWorkflow:
    """One evaluation. ``service`` must run and have the protocol's version of the payer's slot.

    ``parallel`` episodes are in flight as seats allow. ``on_episode`` hears of every record when it is complete.
    """

    protocol: EvaluationProtocol
    policy: Policy
    payer: Payer
    service: InferenceService
    pool: EnvironmentPool
    parallel: int = 4
    shelf: VideoShelf | None = None
    on_episode: Callable[[EpisodeRecord], None] = lambda record: None
    _fit: PolicyFit = field(init=False)
    _hz: float = field(init=False)
    _records: dict[int, EpisodeRecord] = field(init=False, default_factory=dict)
    _predict_s: list[float] = field(init=False, default_factory=list)
    _group_sizes: list[int] = field(init=False, default_factory=list)

    async def run(self) -> EvaluationResult:
        """Check, then play every planned episode. Raises SimulatorError, EnvironmentLost and UnknownVersion before
        the first step; ServiceStopped later. Whatever else goes wrong is an error of its own episode.
        """
        started_s, payer = time.monotonic(), self.payer
        pin = self.service.policies.pin(payer.tenant_id, payer.slot_id, self.protocol.policy_version)
        try:
            async with await self._open() as session:
                await self._check(session)
            await self._play_all()
        finally:
            self.service.policies.unpin(pin)
        return EvaluationResult.of(
            self.protocol,
            [self._records[seed] for seed in self.protocol.seeds],
            predict_s=self._predict_s,
            group_sizes=self._group_sizes,
            wall_s=time.monotonic() - started_s,
        )

    async def _open(self) -> EnvironmentSession:
        """One seat; the pool keeps processes warm, so that the next session of this kind starts at once."""
        kind = kind_for(self.policy, self.protocol.environment, self.protocol.state)
        rules = TryRules(
            steps_max=self.protocol.max_steps, ends_on_termination=not self.protocol.goes_on_after_success
        )
        return await self.pool.open(SessionSpec(tenant_id=self.payer.tenant_id, kind=kind, seats=1, rules=rules))

    async def _check(self, session: EnvironmentSession) -> None:
        self._fit, self._hz = PolicyFit.of(self.policy, session.schema), session.schema.control_hz
        (start,) = await session.reset(self.protocol.seeds[:1])
        self._fit.check_start(start.observation)

    async def _play_all(self) -> None:
        """Players take the next planned episode until none is left."""
        seeds = iter(self.protocol.seeds)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(min(self.parallel, len(self.protocol.seeds))):
                    group.create_task(self._player(seeds, f"{self.payer.job_id}/evaluation-{number}"))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _player(self, seeds: Iterator[int], queue_session: str) -> None:
        session: EnvironmentSession | None = None
        try:
            for seed in seeds:
                trial = Trial(seed=seed, film=None if self.shelf is None else Film(seed))
                try:
                    if session is None or session.lost is not None:
                        session = await self._open()
                    await self._play(session, trial, queue_session)
                except ServiceStopped:
                    raise
                except (EnvironmentLost, SimulatorError, InferenceError, SchedulerError) as error:
                    trial.fail(error)
                await self._keep(trial)
        finally:
            if session is not None:
                await session.close()

    async def _play(self, session: EnvironmentSession, trial: Trial, queue_session: str) -> None:
        (start,) = await session.reset([trial.seed])
        trial.begin(start)
        observation, feature = start.observation, self._fit.feature(start.observation)
        while trial.cause is None:
            actions_CA = await self._decide(trial, feature, self._fit.state(observation), queue_session)
            (result,) = await session.step(actions_CA[None])
            assert result is not None
            trial.add(result, feature)
            observation, feature = result.observation, self._fit.feature(result.observation)
        trial.end(feature)

    async def _decide(
        self, trial: Trial, feature: VLAFeature, state_BS: np.ndarray | None, queue_session: str
    ) -> np.ndarray:
        """The steps to execute, in the environment's convention; seed and decision alone determine the noise."""
        payer = self.payer
        request = PredictRequest(
            tenant_id=payer.tenant_id,
            job_id=payer.job_id,
            attempt=payer.attempt,
            session_id=queue_session,
            slot_id=payer.slot_id,
            features=(feature,),
            state_BS=state_BS,
            seeds=(trial.seed * _DECISIONS_MAX + trial.decisions,),
            policy_version=self.protocol.policy_version,
        )
        with trial.predicting():
            reply = await self._predict(request)
        trial.group_sizes.append(reply.group_size)
        return self._fit.to_environment(reply.actions_BHA[0, : self.protocol.executed_steps])

    async def _predict(self, request: PredictRequest) -> PredictReply:
        """A full queue is no fault of the policy: ask again until there is room."""
        while True:
            try:
                return await self.service.predict(request)
            except InferenceQueueFull:
                await asyncio.sleep(_QUEUE_FULL_S)

    async def _keep(self, trial: Trial) -> None:
        video, video_error = await self._video(trial)
        record = trial.record(video=video, video_error=video_error)
        self._records[trial.seed] = record
        self._predict_s += trial.predict_s
        self._group_sizes += trial.group_sizes
        self.on_episode(record)

    async def _video(self, trial: Trial) -> tuple[str | None, str | None]:
        """A video that cannot be written is told of; it changes no figure."""
        if self.shelf is None or trial.film is None or not trial.steps:
            return None, None
        place = self.shelf.place(self.protocol.environment, trial.seed, trial.outcome)
        if place is None:
            return None, None
        try:
            await asyncio.to_thread(trial.film.write, place, hz=self._hz, outcome=trial.outcome)
        except (OSError, ValueError) as error:
            return None, str(error)
        return str(place), None
