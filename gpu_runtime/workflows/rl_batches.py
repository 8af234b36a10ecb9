"""Batches of experience for one reinforcement-learning job: the rollout stage of its loop."""

import time
from dataclasses import dataclass, field

from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.seat_desk import SeatDesk
from gpu_runtime.environments.session import SessionSpec
from gpu_runtime.environments.slot import TryRules
from gpu_runtime.inference.messages import Mode
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.rl.advantages import needs_final_value, rollout_metrics
from gpu_runtime.training.rl.experience import Episode
from gpu_runtime.workflows.actor import Acting, Actor
from gpu_runtime.workflows.environment_use import UseTeller
from gpu_runtime.workflows.first_look import FirstLook, look
from gpu_runtime.workflows.playing import Playing
from gpu_runtime.workflows.ports import EnvironmentMeter, Teller
from gpu_runtime.workflows.rl_plan import TRAINING_SEEDS, RlPlan
from gpu_runtime.workflows.tour import Tour, environment_kind
from gpu_runtime.workflows.waiting import Herald


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedBatch:
    """Complete: every planned try ended, or was solved before it began. ``metrics`` are the batch's own."""

    episodes: tuple[Episode, ...]
    metrics: dict[str, float]


@dataclass(slots=True, kw_only=True)
class BatchPlayer:
    """Plays the batches of one job, one at a time. ``env_steps`` and ``lost`` count over all of them."""

    spec: RlJobSpec
    job: MountedJob
    service: InferenceService
    pool: EnvironmentPool
    rollouts: SeatDesk
    tell: Teller
    meter: EnvironmentMeter
    env_steps: int = 0
    lost: int = field(init=False, default=0)

    async def look(self) -> FirstLook:
        """Policy and environment fit, or SimulatorError, EnvironmentLost; nothing is played."""
        policy, seed = self.job.slot.policy, TRAINING_SEEDS[0]
        return await look(self.pool, self._session(1), policy, seed=seed, tell=self.tell, meter=self.meter)

    async def play(self, step: int, *, unbilled: str | None) -> PlayedBatch:
        """The batch that makes policy version ``step``, by exploring with the latest version at every decision.

        Raises EnvironmentLost when sessions are lost again and again; SimulatorError, InferenceError, SchedulerError.
        """
        herald, started_s = Herald(tell=self.tell), time.monotonic()
        tries = RlPlan.of(self.spec).tries(step)
        tour = self._tour(step, seats=min(self.spec.collection.seats, len(tries)), unbilled=unbilled)
        leave = None
        try:
            leave = await self.rollouts.take(self.job.tenant_id, 1, herald.rollouts)
            await tour.play(tries)
        finally:
            if leave is not None:
                self.rollouts.give_back(leave)
            self.env_steps, self.lost = self.env_steps + tour.env_steps, self.lost + tour.lost
            await herald.close()
        return self._batch(tour, wall_s=time.monotonic() - started_s)

    def _tour(self, step: int, *, seats: int, unbilled: str | None) -> Tour:
        job = self.job
        acting = Acting(
            tenant_id=job.tenant_id,
            job_id=job.job_id,
            attempt=job.attempt,
            slot_id=job.key,
            mode=Mode.SAMPLE,
            keep_features=True,
            told_progress=self._told_progress,
            unbilled=unbilled,
        )
        return Tour(
            pool=self.pool,
            session=self._session(seats),
            policy=job.slot.policy,
            actor=Actor(service=self.service, acting=acting, session_id=f"{job.key}/rollout"),
            executed=self.spec.executed_steps,
            use=UseTeller(meter=self.meter, work=f"rollout/{step}", step=step, seats=seats, reason=unbilled),
            tell=self.tell,
            wants_final=self._wants_final,
        )

    def _batch(self, tour: Tour, *, wall_s: float) -> PlayedBatch:
        """Shaped for training, members of a group together."""
        reward, chunk, told = self.spec.collection.reward, self.spec.executed_steps, self._told_progress
        ended = sorted(tour.ended, key=lambda playing: playing.planned.index)
        episodes = tuple(playing.episode(reward, chunk=chunk, told_progress=told) for playing in ended)
        totals = {
            "env_steps": self.env_steps,
            "env_steps_per_s": tour.env_steps / max(1e-6, wall_s),
            "dropped_lost": self.lost,
            "dropped_stale": self.job.dropped_stale,
            "solved_at_reset": len(tour.solved),
        }
        metrics = rollout_metrics(episodes) | tour.actor.statistics.metrics()
        return PlayedBatch(
            episodes=episodes,
            metrics=metrics | {f"rollout/{name}": float(value) for name, value in totals.items()},
        )

    @property
    def _told_progress(self) -> bool:
        return self.spec.value is not None and self.spec.value.episode_progress

    def _wants_final(self, playing: Playing) -> bool:
        assert playing.last is not None, "it has ended"
        ends = {"terminated": playing.last.terminated, "truncated": playing.last.truncated}
        return needs_final_value(self.spec.algorithm, **ends)

    def _session(self, seats: int) -> SessionSpec:
        collection, environment = self.spec.collection, self.spec.environment
        return SessionSpec(
            tenant_id=self.job.tenant_id,
            kind=environment_kind(self.job.slot.policy, environment),
            seats=seats,
            processes=None if collection.processes is None else min(collection.processes, seats),
            rules=TryRules(steps_max=environment.max_steps),
        )
