"""A job's place in the training service: taken at the start, left when nothing touches its slot any more."""

from dataclasses import dataclass, field

from gpu_runtime.services.training import TrainingService
from gpu_runtime.services.workload import KEEP, SHUTDOWN
from gpu_runtime.training.mounted import MountedJob
from gpu_runtime.training.queue import SharedQueue


@dataclass(slots=True, kw_only=True)
class TrainingMount:
    """Event loop only. ``reached``: the step at which a stop that keeps comes at the earliest; what lies before it was
    paid for, and is redone after a restart."""

    job: MountedJob
    weight: int
    training: TrainingService
    queue: SharedQueue
    reached: int = 0
    _open: bool = field(init=False, default=False)

    async def open(self) -> None:
        """From here on partitions of the job can be leased."""
        self._open = True
        await self.training.mount(self.job, self.weight)

    def stop(self, reason: str) -> None:
        """Nothing further is produced or consumed; with ``KEEP`` only after the step under way.

        At a shutdown what is in the queue may stay: it is redone.
        """
        if reason == SHUTDOWN:
            self.job.stopped = True
            self.queue.changed.notify()
        elif reason == KEEP:
            self.queue.finish_job(self.job, step=self.reached)
        else:
            self.queue.stop_job(self.job, reason=reason)

    async def settled(self) -> None:
        """Return when the stop has come: no step is under way any more."""
        while not self.job.stopped:
            await self.queue.changed.wait()

    async def save(self) -> None:
        """The slot as it stands, unless a fault of its own ended the job."""
        if self._open and self.job.failure is None:
            await self.training.save(self.job)

    async def close(self) -> None:
        """Wait until everything the job did is in the journal, then forget it."""
        if self._open:
            self._open = False
            self.queue.stop_job(self.job, reason="workload_ended")
            await self.training.unmount(self.job)
