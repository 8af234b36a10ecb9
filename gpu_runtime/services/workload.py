"""What the master drives, whatever the kind of job: it starts, runs to its end or until it is stopped, and lets go."""

from typing import Protocol

from gpu_runtime.protocol.messages import ArtifactPublished

CANCELLED, SHUTDOWN, KEEP = "cancelled", "shutdown", "keep"  # reasons of ``stop``


class Workload(Protocol):
    """One attempt. Calls come from the master, on the event loop, in this order: start, run, publish or keep, close.

    ``warnings``: what its tenant should know about how it was taken up.
    """

    warnings: tuple[str, ...]

    @property
    def step(self) -> int:
        """Steps done; of evaluations and rollouts, episodes."""
        ...

    @property
    def total_steps(self) -> int: ...

    async def start(self) -> None:
        """Mount the slot, publish the policy; nothing that waits for others. Afterwards the attempt is running."""
        ...

    async def run(self) -> None:
        """To the end of the work. Returns early when stopped; raises WorkloadFailed."""
        ...

    def stop(self, reason: str) -> None:
        """``CANCELLED``, ``SHUTDOWN`` or ``KEEP``: ``run`` returns soon. A second time does nothing, but a shutdown
        ends a ``KEEP`` that has not come to its end: the next process does that."""
        ...

    async def save(self) -> None:
        """Make durable what a resumed attempt goes on from; called at an orderly shutdown, while ``run`` may run."""
        ...

    async def publish(self) -> tuple[ArtifactPublished, ...]:
        """What a successful attempt leaves behind; announced with its success."""
        ...

    async def keep(self) -> tuple[ArtifactPublished, ...]:
        """What an attempt leaves behind that was stopped with ``KEEP``, once its step under way is over; may be none.

        Announced with its end.
        """
        ...

    async def close(self) -> None:
        """Always, and last: nothing is held any more. A second time does nothing."""
        ...
