"""Evaluation of one policy version in its environment, as the paper's loop: reset, predict, step, and so on.

Read-only: the version is pinned, nothing is trained. Episodes run side by side, each in an environment process of its
own, so that predictions meet in one forward and a lost environment costs one episode. Shapes: C executed steps of a
chunk, A action dimensions.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.environments.base import EnvironmentKind
from gpu_runtime.environments.errors import EnvironmentLost, SimulatorError, SimulatorMissing
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.results import Observation
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.environments.slot import TryRules
from gpu_runtime.inference.errors import InferenceError, ServiceStopped
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.policy import Policy
from gpu_runtime.scheduler.errors import SchedulerError
from gpu_runtime.workflows.actor import Acting, Actor, Asked, Debt
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from gpu_runtime.workflows.evaluation_result import Cause, EvaluationResult
from gpu_runtime.workflows.evaluation_seat import EvaluationSeat
from gpu_runtime.workflows.evaluation_trial import Trial
from gpu_runtime.workflows.evaluation_videos import FILM_PIXELS, Film, VideoShelf
from gpu_runtime.workflows.evaluation_witness import Played, Unheard, Witness
from gpu_runtime.workflows.failures import ENVIRONMENT_LOST, failure_from
from gpu_runtime.workflows.playing import DECISIONS_MAX
from gpu_runtime.workflows.policy_fit import PolicyFit, matching
from gpu_runtime.workflows.ports import REDONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """Whose policy slot it is, and who pays for the predictions."""

    tenant_id: str
    job_id: str
    slot_id: str
    attempt: int = 1


@dataclass(slots=True, kw_only=True)
class EvaluationWorkflow:
    """One evaluation. ``service`` must run and have the protocol's version of the payer's slot.

    ``parallel`` episodes are in flight as seats allow. ``finished`` were played before a restart and are not played
    again; the first ``redone`` of the others are at the platform's cost, which had begun them once already. What lost
    environments had been predicted for is ``owed``.
    """

    protocol: EvaluationProtocol
    policy: Policy
    payer: Payer
    service: InferenceService
    pool: EnvironmentPool
    parallel: int = 4
    shelf: VideoShelf | None = None
    witness: Witness = field(default_factory=Unheard)
    finished: Mapping[int, Played] = field(default_factory=dict)
    redone: int = 0
    owed: Debt = field(default_factory=Debt)
    _fit: PolicyFit = field(init=False)
    _hz: float = field(init=False)
    _played: dict[int, Played] = field(init=False, default_factory=dict)

    async def check(self) -> None:
        """Compare policy and environment before anything moves; the process stays warm for the episodes.

        Raises SimulatorError, EnvironmentLost and UnknownVersion.
        """
        payer = self.payer
        self.service.policies.unpin(
            self.service.policies.pin(payer.tenant_id, payer.slot_id, self.protocol.policy_version)
        )
        seat, reason = self._seat(), None
        try:
            with matching(self.policy, seat.spec.kind):
                session = await seat.ready()
            self._fit = PolicyFit.of(self.policy, session.schema, self.protocol.cameras)
            self._hz = session.schema.control_hz
            (start,) = await session.reset(self.protocol.seeds[:1])
            self._fit.check_start(start.observation)
        except (EnvironmentLost, SimulatorMissing) as error:  # nobody pays for what there is not
            reason = failure_from(error).reason
            raise
        finally:
            await seat.tell(step=0, work=f"evaluate/{self.protocol.environment}/check", reason=reason)
            await seat.close()

    async def run(self) -> EvaluationResult:
        """Check, then play every planned episode. Raises what ``check`` does before the first step; ServiceStopped
        later. Whatever else goes wrong is an error of its own episode.
        """
        await self.check()
        return await self.play()

    async def play(self) -> EvaluationResult:
        """Every planned episode, once ``check`` found nothing wrong. Raises ServiceStopped."""
        started_s, payer = time.monotonic(), self.payer
        self._played |= self.finished
        pin = self.service.policies.pin(payer.tenant_id, payer.slot_id, self.protocol.policy_version)
        try:
            await self._play_all()
        finally:
            self.service.policies.unpin(pin)
        played = [self._played[seed] for seed in self.protocol.seeds]
        return EvaluationResult.of(
            self.protocol,
            [one.record for one in played],
            predict_s=[taken_s for one in played for taken_s in one.predict_s],
            group_sizes=[size for one in played for size in one.group_sizes],
            wall_s=time.monotonic() - started_s,
        )

    def _seat(self) -> EvaluationSeat:
        """One environment of its own; the pool keeps processes warm, so that the next of this kind starts at once."""
        return EvaluationSeat(spec=self._session(filmed=self._is_filmed), pool=self.pool, witness=self.witness)

    def _session(self, *, filmed: bool) -> SessionSpec:
        """A policy without cameras is filmed through the task's usual ones; unfilmed, nothing is drawn for it."""
        protocol = self.protocol
        kind = EnvironmentKind(
            env_id=protocol.environment,
            cameras=protocol.cameras,
            size=protocol.render_size,
            state=protocol.state,
            control_mode=protocol.control_mode,
            exact=protocol.exact,
        )
        if filmed and not kind.cameras:
            kind = replace(kind, cameras=None, size=FILM_PIXELS)
        rules = TryRules(steps_max=protocol.max_steps, ends_on_termination=not protocol.goes_on_after_success)
        return SessionSpec(tenant_id=self.payer.tenant_id, kind=kind, seats=1, rules=rules)

    @property
    def _is_filmed(self) -> bool:
        """Of an episode that begins now: pictures that are drawn anyway cost nothing, others only while wanted."""
        return self.shelf is not None and (bool(self.policy.views) or self.shelf.wants_more)

    async def _play_all(self) -> None:
        """Players take the next planned episode until none is left."""
        waiting = [seed for seed in self.protocol.seeds if seed not in self._played]
        seeds = iter(enumerate(waiting))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(min(self.parallel, len(waiting))):
                    group.create_task(self._player(seeds, f"{self.payer.job_id}/evaluation-{number}"))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _player(self, seeds: Iterator[tuple[int, int]], queue_session: str) -> None:
        seat = self._seat()
        try:
            for index, seed in seeds:
                film = Film(seed, unseen=not self.policy.views) if self._is_filmed else None
                trial = Trial(seed=seed, film=film, unbilled=REDONE if index < self.redone else None)
                await seat.become(self._session(filmed=film is not None))
                try:
                    await self._try(seat, trial, queue_session)
                finally:
                    await self._tell(seat, trial)
                await seat.between_episodes()
                await self._keep(trial)
        finally:
            await seat.close()

    async def _try(self, seat: EvaluationSeat, trial: Trial, queue_session: str) -> None:
        """Play it, or say what went wrong."""
        try:
            await self._play(await seat.ready(), trial, queue_session)
        except ServiceStopped:
            raise
        except (EnvironmentLost, SimulatorError, InferenceError, SchedulerError) as error:
            if isinstance(error, EnvironmentLost) and trial.unbilled is None:
                self.owed.chunks += trial.decisions
            trial.fail(error)

    async def _tell(self, seat: EvaluationSeat, trial: Trial) -> None:
        lost = trial.cause is Cause.ERROR and (seat.session is None or seat.session.lost is not None)
        await seat.tell(
            step=self.protocol.seeds.index(trial.seed),
            work=f"evaluate/{self.protocol.environment}/{trial.seed}",
            reason=trial.unbilled or (ENVIRONMENT_LOST if lost else None),
        )

    async def _play(self, session: EnvironmentSession, trial: Trial, queue_session: str) -> None:
        actor = self._actor(trial, queue_session)
        (start,) = await session.reset([trial.seed])
        trial.begin(start)
        observation, feature = start.observation, self._fit.feature(start.observation)
        while trial.cause is None:
            actions_CA = await self._decide(trial, actor, feature, observation)
            (result,) = await session.step(actions_CA[None])
            assert result is not None
            trial.add(result, feature.instruction, self._seen(observation, feature))
            observation, feature = result.observation, self._fit.feature(result.observation)
        trial.end(feature.instruction, self._seen(observation, feature))

    def _seen(self, observation: Observation, feature: VLAFeature) -> tuple[np.ndarray, ...]:
        """The pictures of a film: the policy's own, or the task's for one that sees none."""
        return feature.images or observation.images

    async def _decide(self, trial: Trial, actor: Actor, feature: VLAFeature, observation: Observation) -> np.ndarray:
        """The steps to execute, in the environment's convention; seed and decision alone determine the noise."""
        state_1S = self._fit.state(observation)
        asked = Asked(
            features=[feature],
            states=[None if state_1S is None else state_1S[0]],
            seeds=[trial.seed * DECISIONS_MAX + trial.decisions],
            passed_B=None,
        )
        with trial.predicting():
            reply = await actor.decide(asked)
        trial.group_sizes.append(reply.group_size)
        return self._fit.to_environment(reply.actions_BHA[0, : self.protocol.executed_steps])

    def _actor(self, trial: Trial, queue_session: str) -> Actor:
        payer = self.payer
        acting = Acting(
            tenant_id=payer.tenant_id,
            job_id=payer.job_id,
            attempt=payer.attempt,
            slot_id=payer.slot_id,
            version=self.protocol.policy_version,
            unbilled=trial.unbilled,
        )
        return Actor(service=self.service, acting=acting, session_id=queue_session, owed=self.owed)

    async def _keep(self, trial: Trial) -> None:
        video, video_error = await self._video(trial)
        played = trial.played(video=video, video_error=video_error)
        record = await self.witness.ended(played)
        self._played[trial.seed] = played.model_copy(update={"record": record})

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
            self.shelf.take_back(trial.outcome)
            return None, str(error)
        return str(place), None
