"""All roles of one runtime and what connects them, in one process."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpu_runtime.environments.registry import FAMILIES
from gpu_runtime.inference.feature_handles import FeatureHandles
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.placement.feature_store import build_features, features_status, vision_status
from gpu_runtime.placement.serving import build_inference, build_pool, build_rollout_desk
from gpu_runtime.protocol.messages import RuntimeStatus
from gpu_runtime.scheduler.errors import SchedulerError
from gpu_runtime.scheduler.training_queue import QueueLimits, TrainingQueue
from gpu_runtime.services.admission import Admission
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.services.config import RuntimeConfig
from gpu_runtime.services.datasets import DatasetVerifier
from gpu_runtime.services.drains import Drains
from gpu_runtime.services.environment_status import EnvironmentWatch
from gpu_runtime.services.feed import EventFeed
from gpu_runtime.services.gateway import Gateway
from gpu_runtime.services.inference_status import InferenceWatch
from gpu_runtime.services.master import Master
from gpu_runtime.services.mounting import Mounter
from gpu_runtime.services.parts import RuntimeParts
from gpu_runtime.services.publishing import Publisher
from gpu_runtime.services.removal import Removal
from gpu_runtime.services.retention import EventRetention
from gpu_runtime.services.training import TrainingService
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.store.records import Write
from gpu_runtime.training.ahead import ReadAhead
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.queue import SharedQueue
from gpu_runtime.training.step import DeviceStep

_log = logging.getLogger(__name__)


class LocalRuntime:
    """Create on the event loop; the journal is opened here. ``work`` runs it, ``stop`` ends it in good order."""

    def __init__(
        self, config: RuntimeConfig, bases: Mapping[str, Backbone], *, families: Mapping[str, str] = FAMILIES
    ) -> None:
        self.config, self.bases, self._families = config, bases, families
        self._pools = {name: ThreadPoolExecutor(2, name) for name in ("files", "readers", "ahead", "mounts")}
        self._started_at_us = time.time_ns() // 1000
        self._stopping = False
        self._trained = asyncio.Event()  # no step of training runs any more
        self._build_storage()
        self._build_training()
        self._build_serving(families)
        self._build_master(families)

    def status(self) -> RuntimeStatus:
        """The gateway's account of the whole process."""
        problem = self.durability.problem
        reason = "stopping" if self._stopping else (problem.code if problem else None)
        services = (
            self.training.status(),
            self._inference_watch.status(self.inference, self.durability, stopping=self._stopping),
            self._environment_watch.status(stopping=self._stopping),
        )
        return RuntimeStatus(
            journal_id=self.journal.journal_id,
            last_seq=self.journal.last_seq,
            accepting=reason is None,
            reason=reason,
            bases=tuple(base.info for base in self.bases.values()),
            services=tuple(self.drains.shown(service) for service in services),
            active_jobs=self.master.active_jobs,
            partition_bytes=self.partitions.live_bytes,
            env_seats_per_tenant=min(self.config.env_seats_total, self.config.env_seats_per_tenant),
            env_namespaces=tuple(self._families),
            starts=self.journal.starts,
            started_at_us=self._started_at_us,
            feature_store=None if self.features is None else features_status(self.features),
            vision_reuse=vision_status(self.bases.values()),
        )

    def gateway(self) -> Gateway:
        """The HTTP face of these roles."""
        return Gateway(
            token=self.config.token,
            master=self.master,
            feed=self.feed,
            artifacts=self.artifacts,
            drains=self.drains,
            removal=Removal(
                master=self.master,
                artifacts=self.artifacts,
                checkpoints=self.checkpoints,
                features=self.features,
                files=self._pools["files"],
            ),
            status=self.status,
        )

    async def work(self) -> None:
        """Take up what the last process left, then serve until ``stop``. Raises what a service failed of."""
        await self.master.recover()
        await self.durability.write(Write(queue=self.queue.dump()))  # before any lease: its epochs must be new
        beside = [
            asyncio.create_task(self.retention.run(), name="event retention"),
            asyncio.create_task(self._environment_watch.run(), name="environment watch"),
        ]
        try:
            await asyncio.gather(_named("training", self._train()), _named("inference", self.inference.run()))
        finally:
            for task in beside:
                task.cancel()

    async def _train(self) -> None:
        try:
            await self.training.run()
        finally:
            self._trained.set()

    async def stop(self, work: "asyncio.Task[None]") -> None:
        """Finish the steps in progress, make every slot durable, leave every attempt resumable.

        Inference ends after the workloads, which ask it for actions; environment processes are killed last.
        """
        self._stopping = True
        self.feed.close()
        self.training.stop()
        trained = asyncio.create_task(self._trained.wait())
        await asyncio.wait({work, trained}, return_when=asyncio.FIRST_COMPLETED)
        trained.cancel()
        await self.master.save()
        await self.master.stop()
        self.inference.stop()
        await asyncio.wait({work})
        await self.pool.close()

    def drain(self) -> None:
        """End the threads. Blocks for as long as one is busy, e.g. with hashing a large dataset."""
        for pool in (*self._pools.values(), self.training.compute):
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """End the threads and close the journal."""
        self.drain()
        if self.features is not None:
            self.features.close()
        self.durability.close()
        self.journal.close()

    def _build_storage(self) -> None:
        config, state = self.config, self.config.state
        self.journal = Journal(state / "journal.sqlite3", config.journal_max_bytes or None)
        self.feed = EventFeed(self.journal)
        self.retention = EventRetention(feed=self.feed, journal=self.journal, days=config.journal_days)
        self.durability = Durability(self.journal, state, config.min_free_bytes)
        self.partitions = PartitionStore(state / "partitions", config.partition_bytes, config.min_free_bytes)
        self.checkpoints = Checkpoints(state / "checkpoints", config.keep_checkpoints)
        self.artifacts = Artifacts(state / "artifacts")

    def _build_training(self) -> None:
        config = self.config
        self._device = next(iter(self.bases.values())).info.device
        self.handles = FeatureHandles(config.handle_bytes)
        self.features, self.staging = build_features(config, self._device)
        step = DeviceStep(self.partitions, DeviceClock(self._device), self.handles, head_pool=bool(config.head_pool))
        self.ahead = ReadAhead(step.read, self._pools["ahead"], config.read_ahead_bytes)
        self.queue = SharedQueue(
            restore_queue(config, self.journal, self.partitions),
            self.partitions,
            self.durability,
            self._pools["files"],
            config.batch_bytes_max,
            self.ahead,
        )
        self.training = TrainingService(
            queue=self.queue,
            step=step,
            durability=self.durability,
            checkpoints=self.checkpoints,
            lease_ttl_us=config.lease_ttl_ms * 1000,
            status_window_us=config.status_window_s * 1_000_000,
            threads=config.threads,
            files=self._pools["files"],
            on_unmount=lambda job: self.handles.release(job.tenant_id, job.key),
        )

    def _build_serving(self, families: Mapping[str, str]) -> None:
        config, window_us = self.config, self.config.status_window_s * 1_000_000
        self._inference_watch = InferenceWatch(window_us=window_us)
        self.inference = build_inference(
            config,
            device=self._device,
            handles=self.handles,
            durability=self.durability,
            watch=self._inference_watch,
        )
        self.pool = build_pool(config, families)
        self._environment_watch = EnvironmentWatch(self.pool, window_us=window_us)
        self.rollouts = build_rollout_desk(config)

    def _build_master(self, families: Mapping[str, str]) -> None:
        config = self.config
        publisher = Publisher(
            artifacts=self.artifacts,
            training=self.training,
            journal=self.journal,
            durability=self.durability,
            files=self._pools["files"],
        )
        self.parts = RuntimeParts(
            config=config,
            bases=self.bases,
            durability=self.durability,
            artifacts=self.artifacts,
            checkpoints=self.checkpoints,
            verifier=DatasetVerifier(hash_files=bool(config.verify_datasets)),
            publisher=publisher,
            queue=self.queue,
            training=self.training,
            inference=self.inference,
            features=self.features,
            staging=self.staging,
            pool=self.pool,
            rollouts=self.rollouts,
            readers=self._pools["readers"],
            files=self._pools["files"],
        )
        self.drains = Drains(journal=self.journal, durability=self.durability)
        self.master = Master(
            admission=Admission(config=config, bases=self.bases, artifacts=self.artifacts, families=families),
            journal=self.journal,
            durability=self.durability,
            mounter=Mounter(self.parts),
            mounts=self._pools["mounts"],
            drains=self.drains,
            max_jobs=config.max_jobs,
        )


async def _named(name: str, service: Coroutine[Any, Any, None]) -> None:
    try:
        await service
    except Exception:
        _log.critical("the %s service failed", name)
        raise


def restore_queue(config: RuntimeConfig, journal: Journal, partitions: PartitionStore) -> TrainingQueue:
    """The queue as it was, less its partitions: sampling is a pure function of seed and step, so they are redone."""
    limits = QueueLimits(
        in_flight_per_job=config.in_flight_per_job,
        bytes_per_tenant=config.partition_bytes_per_tenant,
        bytes_total=config.partition_bytes,
        lease_ttl_us=config.lease_ttl_ms * 1000,
    )
    options: dict[str, Any] = {
        "batch_limit_tokens": config.group_tokens,
        "window_us": config.window_ms * 1000,
        "wait_us": config.wait_ms * 1000,
    }
    queue = TrainingQueue(limits, **options)
    if (dump := journal.queue_dump()) is not None:
        try:
            queue = TrainingQueue.load(dump, limits, **options)
        except (ValueError, LookupError, TypeError, AttributeError, SchedulerError) as error:
            # e.g. written by another version; nothing but the fair shares so far is lost with it
            _log.error("the saved training queue cannot be read, fair shares start anew: %r", error)
    for job_id in {job.job_id for job in queue.jobs() if not job.ended}:
        queue.cancel_job(job_id, reason="runtime_restart")
    removed = partitions.sweep(())
    if removed:
        _log.info("swept %d partitions of the last run", len(removed))
    for partition_id in queue.awaiting_clear():
        queue.cleared(partition_id)
    return queue
