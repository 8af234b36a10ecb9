"""Reinforcement learning, as the paper's asynchronous loop. Three tasks of one workflow, side by side:

producer    reserve -> rollout -> advantage -> queue_put -> mark_ready     (the trainer leases, checks, trains)
publisher   export_params -> load_weights                                  (each new policy version, at once)
monitor     ends all of it when the job is stopped, or learns nothing any more
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from gpu_runtime.batching.repeats import without_repeats
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.seat_desk import SeatDesk
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.protocol.ids import JobId
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.scheduler.staleness import Freshness
from gpu_runtime.scheduler.states import Purpose, TrainingJobState
from gpu_runtime.training.mounted import Failure, MountedJob
from gpu_runtime.training.queue import Payload, SharedQueue, run_in
from gpu_runtime.training.rl.advantages import assemble
from gpu_runtime.training.rl.batch import pack_rl_batch
from gpu_runtime.training.rl.update import check_options
from gpu_runtime.training.work import Work
from gpu_runtime.workflows.failures import EXPECTED, failure_from
from gpu_runtime.workflows.first_look import FirstLook
from gpu_runtime.workflows.ports import REDONE, EnvironmentMeter, Teller
from gpu_runtime.workflows.rl_batches import BatchPlayer, PlayedBatch
from gpu_runtime.workflows.sft import WorkloadFailed

STALE_IN_A_ROW_MAX = 10
_STEPS_GUESSED = 100  # of an episode that nothing cuts off


@dataclass(slots=True, kw_only=True)
class RlWorkflow:
    """One attempt. The job must be mounted in the training service; the policy slot is opened and closed here.

    ``rollouts`` bounds how many rollouts are in production, of a tenant and in all. ``freeze`` copies the slot in the
    training service's compute thread. ``resumed``: taken up after a restart, so that what was played for versions up
    to ``reached``, and what may have been under way then, is redone and nobody pays for it again; ``env_steps``: those
    before the checkpoint it goes on from.
    """

    spec: RlJobSpec
    job: MountedJob
    queue: SharedQueue
    service: InferenceService
    pool: EnvironmentPool
    rollouts: SeatDesk
    tell: Teller
    meter: EnvironmentMeter
    freeze: Callable[[], Awaitable[tuple[int, ServedPolicy]]]
    readers: Executor
    resumed: bool = False
    reached: int = 0
    env_steps: int = 0
    _player: BatchPlayer = field(init=False)
    _free_until: int = field(init=False)  # the last step whose rollout is redone
    _published: int = field(init=False, default=-1)
    _begun: int = field(init=False, default=0)  # number of the last batch

    def __post_init__(self) -> None:
        self._player = BatchPlayer(
            spec=self.spec,
            job=self.job,
            service=self.service,
            pool=self.pool,
            rollouts=self.rollouts,
            tell=self.tell,
            meter=self.meter,
            env_steps=self.env_steps,
        )
        redone = self.spec.collection.max_staleness + 1 if self.resumed else 0
        self._free_until = max(self.job.slot.step, self.reached) + redone

    async def run(self) -> None:
        """To the last policy version. Returns early when the job is stopped; raises WorkloadFailed.

        Nothing is held afterwards: no seat, no pin, no policy slot, no partition in production.
        """
        self.service.policies.open(self.job.tenant_id, self.job.key)
        tasks = [asyncio.create_task(self._monitor()), asyncio.create_task(self._learn())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            try:
                ends = await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                self.service.policies.close(self.job.tenant_id, self.job.key)
        self._raise_first(ends)

    def stop(self, reason: str) -> None:
        """``run`` returns soon, wherever it waits. A second time does nothing."""
        self.queue.stop_job(self.job, reason=reason)

    def _raise_first(self, ends: Sequence[BaseException | None]) -> None:
        """What trainer and tasks met; what a stopped job met on its way out is nobody's concern."""
        if self.job.failure is not None:
            raise WorkloadFailed(self.job.failure)
        for error in ends:
            if isinstance(error, EXPECTED) and not self.job.stopped:
                raise WorkloadFailed(failure_from(error)) from error
            if error is not None and not isinstance(error, (*EXPECTED, asyncio.CancelledError)):
                raise error

    async def _learn(self) -> None:
        assert isinstance(self.job.slot, RlSlot), "made by RlSlot.create"
        check_options(self.job.slot, self.spec)
        if self.job.stopped:  # before it began: not even a first look is paid
            return
        first = await self._player.look()
        await self._publish()
        publisher = asyncio.create_task(self._publisher())
        producer = asyncio.create_task(self._producer(first))
        try:
            await asyncio.wait([publisher, producer], return_when=asyncio.FIRST_COMPLETED)
            if publisher.done():
                publisher.result()
            await producer
        finally:
            for task in (publisher, producer):
                task.cancel()
            await asyncio.gather(publisher, producer, return_exceptions=True)

    async def _monitor(self) -> None:
        """Returns when there is nothing left to do for the others."""
        while not self.job.stopped:
            if self.job.stale_in_a_row >= STALE_IN_A_ROW_MAX:
                text = f"{self.job.stale_in_a_row} batches in a row were too old when their turn came"
                self.job.failure = Failure(reason="all_rollouts_stale", message=text)
                self.queue.stop_job(self.job, reason="all_rollouts_stale")
                return
            await self.queue.changed.wait()

    # --- load_weights

    async def _publisher(self) -> None:
        while True:
            if self._version > self._published:
                await self._publish()
            else:
                await self.queue.changed.wait()

    async def _publish(self) -> None:
        """The slot as it is between two steps; from here on whoever asks for the latest version gets this one."""
        version, policy = await self.freeze()
        self.service.policies.publish(self.job.tenant_id, self.job.key, version, policy)
        self._published = version
        self.queue.changed.notify()  # whoever waits for a fresher version may go on

    # --- reserve, rollout, advantage, queue_put, mark_ready

    async def _producer(self, first: FirstLook) -> None:
        """One rollout at a time; the queue bounds how far it runs ahead of training."""
        while not self._done:
            if self._wanted and not self._spent:
                await self._produce(Work(purpose=Purpose.TRAIN, step=self._next_step), first)
            else:
                await self.queue.changed.wait()

    async def _produce(self, work: Work, first: FirstLook) -> None:
        """One batch from its reservation to its place in the queue; given up as a whole if anything goes wrong."""
        partition_id = self._partition_id(work)
        if not await self._reserve(work, partition_id, first):
            return
        self._begun = work.step
        try:
            self.queue.advance(partition_id, TrainingJobState.PRODUCING)
            batch = await self._player.play(work.step, unbilled=self._unbilled(work.step))
            self.queue.advance(partition_id, TrainingJobState.COMPUTING_ADVANTAGE)
            payload = await run_in(self.readers, self._payload, batch)
            await self.queue.put(self.job, partition_id, payload)
        except BaseException as error:
            self.queue.abandon(self.job, partition_id, reason=_reason(error))
            raise

    async def _reserve(self, work: Work, partition_id: str, first: FirstLook) -> bool:
        decisions = -(-(first.max_steps or _STEPS_GUESSED) // self.spec.executed_steps)
        samples = self.spec.collection.episodes * decisions  # at most: episodes may end early
        prompts = len(without_repeats([first.feature] * samples))  # a task's words stay the same, its pictures do not
        return await self.queue.reserve(
            self.job,
            work,
            partition_id,
            priority=self.spec.priority,
            samples=samples,
            tokens=prompts * self.job.backbone.tokens(first.feature),
            freshness=self._freshness,
        )

    def _freshness(self) -> Freshness:
        """Of a rollout that would start now."""
        return Freshness(behaviour_version=self._published, max_staleness=self.spec.collection.max_staleness)

    def _payload(self, batch: PlayedBatch) -> Payload:
        """What it was like travels with it: which version it makes is known when its turn comes."""
        return pack_rl_batch(replace(assemble(self.spec.algorithm, batch.episodes), told=batch.metrics))

    def _partition_id(self, work: Work) -> str:
        return f"{self.job.job_id}.{self.job.attempt}.{work.name.replace('/', '-')}.{uuid.uuid4().hex[:8]}"

    def _unbilled(self, step: int) -> str | None:
        return REDONE if step <= self._free_until else None

    # --- how far it is

    @property
    def _version(self) -> int:
        """As the queue counts it: the step behind it is settled."""
        return self.queue.queue.policy_version(JobId(self.job.key))

    @property
    def _next_step(self) -> int:
        """Number of the next batch: the version that it makes, as long as none before it is dropped.

        Never one that was used: it is the batch's place in line, decides its starts, and names what is billed.
        """
        return max(self._begun, self._version) + 1

    @property
    def _wanted(self) -> bool:
        """What is in line does not yet make the last version."""
        return self._version + len(self.job.outstanding) < self.spec.training.iterations

    @property
    def _spent(self) -> bool:
        """As many environment steps as the job may take are played."""
        most = self.spec.training.max_env_steps
        return most is not None and self._player.env_steps >= most

    @property
    def _done(self) -> bool:
        """Nothing is left to be produced or consumed; a stopped job reserves nothing any more."""
        if self.job.stopped:
            return True
        return not self.job.outstanding and (self._version >= self.spec.training.iterations or self._spent)


def _reason(error: BaseException) -> str:
    return failure_from(error).reason if isinstance(error, Exception) else "cancelled"
