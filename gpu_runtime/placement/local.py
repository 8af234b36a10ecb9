"""Every role in this process: the default placement. The device has a thread of its own, files have others."""

import asyncio
import functools
import logging
import os
import signal
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.placement.http_server import build_server, open_socket
from gpu_runtime.placement.state_folder import exclusive
from gpu_runtime.protocol.messages import RuntimeStatus
from gpu_runtime.scheduler.training_queue import QueueLimits, TrainingQueue
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.checkpoints import Checkpoints
from gpu_runtime.services.config import ConfigurationError, RuntimeConfig
from gpu_runtime.services.datasets import DatasetVerifier
from gpu_runtime.services.feed import EventFeed
from gpu_runtime.services.gateway import Gateway
from gpu_runtime.services.master import Master
from gpu_runtime.services.mounting import Mounter
from gpu_runtime.services.training import TrainingService
from gpu_runtime.store.durability import Durability
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.partitions import PartitionStore
from gpu_runtime.store.records import Write
from gpu_runtime.training.clock import DeviceClock
from gpu_runtime.training.queue import SharedQueue
from gpu_runtime.training.step import DeviceStep

_log = logging.getLogger(__name__)
_STOP_WITHIN_S = 4.5


def load_bases(config: RuntimeConfig) -> dict[str, Backbone]:
    """Load every configured base; they stay resident. Raises ConfigurationError naming the one that cannot be."""
    torch.set_num_threads(config.threads)
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    load = functools.partial(
        load_backbone, device=device, dtype=config.dtype, max_tokens_per_forward=config.max_tokens_per_forward
    )
    bases = {}
    for name, entry in config.bases.items():
        try:
            bases[name] = load(entry)
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"base model {name}={entry.source}: {error}") from error
    return bases


class LocalRuntime:
    """The roles and what connects them. Create on the event loop; the journal is opened here."""

    def __init__(self, config: RuntimeConfig, bases: Mapping[str, Backbone]) -> None:
        self.config, self.bases = config, bases
        state = config.state
        device = next(iter(bases.values())).info.device
        self._pools = [ThreadPoolExecutor(2, name) for name in ("files", "readers", "mounts")]
        files, readers, mounts = self._pools
        self.journal = Journal(state / "journal.sqlite3", config.journal_max_bytes or None)
        self.durability = Durability(self.journal, state, config.min_free_bytes)
        self.partitions = PartitionStore(state / "partitions", config.partition_bytes, config.min_free_bytes)
        self.queue = SharedQueue(
            restore_queue(config, self.journal, self.partitions),
            self.partitions,
            self.durability,
            files,
            config.partition_bytes_per_tenant,
        )
        checkpoints = Checkpoints(state / "checkpoints", config.keep_checkpoints)
        self.training = TrainingService(
            queue=self.queue,
            step=DeviceStep(self.partitions, DeviceClock(device)),
            durability=self.durability,
            checkpoints=checkpoints,
            lease_ttl_us=config.lease_ttl_ms * 1000,
            status_window_us=config.status_window_s * 1_000_000,
            threads=config.threads,
        )
        mounter = Mounter(
            config=config,
            bases=bases,
            checkpoints=checkpoints,
            queue=self.queue,
            verifier=DatasetVerifier(hash_files=bool(config.verify_datasets)),
            readers=readers,
        )
        self.artifacts = Artifacts(state / "artifacts")
        self.master = Master(
            datasets=config.datasets,
            bases=bases,
            journal=self.journal,
            durability=self.durability,
            queue=self.queue,
            training=self.training,
            mounter=mounter,
            artifacts=self.artifacts,
            mounts=mounts,
            files=files,
            max_jobs=config.max_jobs,
        )
        self.feed = EventFeed(self.journal)
        self._stopping = False

    def status(self) -> RuntimeStatus:
        """The gateway's account of the whole process."""
        problem = self.durability.problem
        reason = "stopping" if self._stopping else (problem.code if problem else None)
        return RuntimeStatus(
            journal_id=self.journal.journal_id,
            last_seq=self.journal.last_seq,
            accepting=reason is None,
            reason=reason,
            bases=tuple(base.info for base in self.bases.values()),
            services=(self.training.status(),),
            active_jobs=self.master.active_jobs,
            partition_bytes=self.partitions.live_bytes,
        )

    def gateway(self) -> Gateway:
        """The HTTP face of these roles."""
        return Gateway(
            token=self.config.token,
            master=self.master,
            feed=self.feed,
            artifacts=self.artifacts,
            status=self.status,
        )

    async def work(self) -> None:
        """Take up what the last process left, then train until ``stop``."""
        await self.master.recover()
        await self.durability.write(Write(queue=self.queue.dump()))  # before any lease: its epochs must be new
        await self.training.run()

    async def stop(self, work: "asyncio.Task[None]") -> None:
        """Finish the step in progress, make every slot durable, leave every attempt resumable."""
        self._stopping = True
        self.feed.close()
        self.training.stop()
        await asyncio.wait({work})
        for job in self.training.mounted:
            if job.failure is None:
                await self.training.save(job)
        await self.master.stop()

    def close(self) -> None:
        """End the threads and close the journal."""
        for pool in (*self._pools, self.training.compute):
            pool.shutdown(wait=True, cancel_futures=True)
        self.durability.close()
        self.journal.close()


def restore_queue(config: RuntimeConfig, journal: Journal, partitions: PartitionStore) -> TrainingQueue:
    """The queue as it was, less its partitions: sampling is a pure function of seed and step, so they are redone."""
    limits = QueueLimits(
        in_flight_per_job=config.in_flight_per_job,
        bytes_per_tenant=config.partition_bytes_per_tenant,
        bytes_total=config.partition_bytes,
        lease_ttl_us=config.lease_ttl_ms * 1000,
    )
    options = {
        "batch_limit_tokens": config.group_tokens,
        "window_us": config.window_ms * 1000,
        "wait_us": config.wait_ms * 1000,
    }
    dump = journal.queue_dump()
    queue = TrainingQueue(limits, **options) if dump is None else TrainingQueue.load(dump, limits, **options)
    for job_id in {job.job_id for job in queue.jobs() if not job.ended}:
        queue.cancel_job(job_id, reason="runtime_restart")
    removed = partitions.sweep(())
    if removed:
        _log.info("swept %d partitions of the last run", len(removed))
    for partition_id in queue.awaiting_clear():
        queue.cleared(partition_id)
    return queue


def serve(config: RuntimeConfig) -> None:
    """Run until SIGTERM or SIGINT; returns within five seconds of it. Raises StateFolderInUse, ConfigurationError."""
    with exclusive(config.state):
        asyncio.run(_serve(config))


async def _serve(config: RuntimeConfig) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runtime = LocalRuntime(config, await asyncio.to_thread(load_bases, config))
    server = build_server(runtime.gateway().app())
    serving = asyncio.create_task(server.serve(sockets=[_open_socket(config)]), name="gateway")
    work = asyncio.create_task(runtime.work(), name="training service")
    stopped = asyncio.create_task(stop.wait(), name="signal")
    _log.info("serving on %s, bases: %s", config.listen, ", ".join(config.bases))
    await asyncio.wait({serving, work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    try:
        async with asyncio.timeout(_STOP_WITHIN_S):
            server.should_exit = True
            await asyncio.gather(serving, runtime.stop(work))
    except TimeoutError:
        # Threads cannot be interrupted. Whatever is not durable now is redone from the last checkpoint.
        _log.warning("the step in progress does not end; leaving it to the next start")
        logging.shutdown()
        os._exit(0)
    runtime.close()
    work.result()


def _open_socket(config: RuntimeConfig) -> socket.socket:
    try:
        return open_socket(config.listen)
    except OSError as error:
        raise ConfigurationError(f"--listen {config.listen}: {error}") from error
