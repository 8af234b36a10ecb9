"""A workload that acts with a fixed policy version and trains nothing: evaluation, and collecting rollouts."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gpu_runtime.protocol.messages import ArtifactPublished, SubmitJob
from gpu_runtime.services.artifacts import ArtifactFacts
from gpu_runtime.services.policy_place import PolicyPlace
from gpu_runtime.services.running import StoppableRun
from gpu_runtime.store.durability import Durability

T = TypeVar("T")


class ActingWorkflow(Protocol):
    """Whatever it has reached is on disk at once, so that there is nothing to save. It is stopped by cancelling."""

    @property
    def step(self) -> int: ...

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptShelf:
    """How an attempt's files become durable, and artifacts under its name."""

    submit: SubmitJob
    policy_version: int
    durability: Durability
    files: Executor

    async def durable(self, action: Callable[[], T]) -> T:
        """Run a blocking write until the disk takes it."""
        return await self.durability.persist(action, self.files)

    async def publish(
        self, how: Callable[[ArtifactFacts], ArtifactPublished], facts: ArtifactFacts
    ) -> ArtifactPublished:
        """``how`` is a method of Artifacts with everything but the facts."""
        return await self.durable(lambda: how(facts))

    def facts(self, kind: str, suffix: str, name: str, manifest: dict[str, object]) -> ArtifactFacts:
        """What is said of one artifact of the attempt; ``suffix`` tells it from the others."""
        return ArtifactFacts(
            artifact_id=f"{self.submit.job_id}-{self.submit.attempt}-{suffix}",
            kind=kind,  # type: ignore[arg-type]
            name=name,
            policy_version=self.policy_version,
            manifest=manifest,
        )


@dataclass(slots=True, kw_only=True)
class PolicyWorkload:
    """See ``workload.Workload``. ``leave`` publishes what a successful run leaves behind, ``leave_early`` one that was
    stopped and whose work is to be kept."""

    submit: SubmitJob
    workflow: ActingWorkflow
    place: PolicyPlace
    leave: Callable[[], Awaitable[tuple[ArtifactPublished, ...]]]
    leave_early: Callable[[], Awaitable[tuple[ArtifactPublished, ...]]]
    warnings: tuple[str, ...] = ()
    _running: StoppableRun = field(init=False, default_factory=StoppableRun)

    @property
    def step(self) -> int:
        return self.workflow.step

    @property
    def total_steps(self) -> int:
        return self.submit.spec.total_steps

    async def start(self) -> None:
        self.place.open()

    async def run(self) -> None:
        await self._running.run(self.workflow.run())

    def stop(self, reason: str) -> None:
        self._running.stop()

    async def save(self) -> None:
        """Nothing is only in memory."""

    async def publish(self) -> tuple[ArtifactPublished, ...]:
        return await self.leave()

    async def keep(self) -> tuple[ArtifactPublished, ...]:
        return await self.leave_early()

    async def close(self) -> None:
        self.place.close()
