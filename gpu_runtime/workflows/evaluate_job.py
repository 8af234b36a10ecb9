"""An evaluation job: task after task, every ended episode on disk before it is told, and one report at the end."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from gpu_runtime.environments.base import StateKind
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.seats import SeatWait
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.adapters import Adapter
from gpu_runtime.protocol.messages import ArtifactPublished, EventBody, LogWritten
from gpu_runtime.protocol.policy_specs import EvaluationJobSpec
from gpu_runtime.workflows.actor import Debt
from gpu_runtime.workflows.evaluate import EvaluationWorkflow, Payer
from gpu_runtime.workflows.evaluation_ledger import EpisodeLedger, LedgerLine
from gpu_runtime.workflows.evaluation_plan import plan
from gpu_runtime.workflows.evaluation_progress import EvaluationProgress
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from gpu_runtime.workflows.evaluation_report import EvaluationReport
from gpu_runtime.workflows.evaluation_result import EpisodeRecord, EvaluationResult
from gpu_runtime.workflows.evaluation_videos import VideoShelf
from gpu_runtime.workflows.evaluation_witness import Played
from gpu_runtime.workflows.ports import EnvironmentMeter, EnvironmentUse, Teller
from gpu_runtime.workflows.waiting import Herald

T = TypeVar("T")


class KeepVideo(Protocol):
    """Takes a film that is whole and gives it a place among the artifacts."""

    async def __call__(self, film: Path, manifest: dict[str, object]) -> ArtifactPublished: ...


class Durable(Protocol):
    """Runs a blocking write off the event loop until the disk takes it."""

    async def __call__(self, action: Callable[[], T]) -> T: ...


@dataclass(slots=True, kw_only=True)
class EvaluationJob:
    """``ledger`` and ``films`` (a folder for films in the making) are this attempt's own."""

    spec: EvaluationJobSpec
    adapter: Adapter
    payer: Payer
    service: InferenceService
    pool: EnvironmentPool
    ledger: EpisodeLedger
    films: Path
    tell: Teller
    meter: EnvironmentMeter
    keep_video: KeepVideo
    durable: Durable
    report: EvaluationReport | None = field(init=False, default=None)
    _owed: Debt = field(init=False, default_factory=Debt)  # one task's losses are made up for in the next
    _progress: EvaluationProgress = field(init=False, default_factory=EvaluationProgress)
    _writing: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    @property
    def step(self) -> int:
        """Episodes that have ended."""
        return self._progress.ended

    def protocols(self) -> list[EvaluationProtocol]:
        """One per task. Raises EvaluationRefused, SchemaMismatch."""
        spec, manifest = self.spec, self.adapter.manifest
        seeds = tuple(range(spec.first_seed, spec.first_seed + spec.episodes))
        return [
            plan(
                self.adapter.policy,
                environment=environment.id,
                seeds=seeds,
                adapter_id=manifest.adapter_id,
                policy_version=manifest.training.policy_version,
                state=StateKind(environment.state),
                control_mode=environment.control_mode,
                cameras=environment.cameras,
                max_steps=environment.max_steps,
                executed_steps=spec.executed_steps,
                goes_on_after_success=spec.goes_on_after_success,
                exact=spec.exact,
            )
            for environment in spec.environments
        ]

    async def run(self) -> None:
        """Play what is left, every task checked before any step; ``report`` is there afterwards.

        Raises SimulatorError, EnvironmentLost, EvaluationRefused, ServiceStopped.
        """
        protocols = self.protocols()
        begun = await self.durable(self.ledger.begin)
        lines = await self._taken_up({protocol.hash for protocol in protocols})
        herald = Herald(tell=self.tell)
        try:
            tasks = [self._task(protocol, lines, herald) for protocol in protocols]
            for task in tasks:
                if len(task.finished) < self.spec.episodes:
                    await task.check()
            results = await self._play(tasks, redone=self.spec.parallel if begun else 0)
        finally:
            await herald.close()
        self.report = EvaluationReport.of(results)

    async def _play(self, tasks: list[EvaluationWorkflow], *, redone: int) -> list[EvaluationResult]:
        """Task after task. ``redone``: as many episodes as may have been under way when the last process ended."""
        results = []
        for task in tasks:
            task.redone = min(redone, self.spec.episodes - len(task.finished))
            redone -= task.redone
            results.append(await task.play())
        return results

    async def _taken_up(self, hashes: set[str]) -> list[LedgerLine]:
        """Episodes of before a restart, told again: the journal knows what it has heard already."""
        found = await asyncio.to_thread(self.ledger.read)
        lines = [line for line in found if line.protocol_hash in hashes]
        bodies: list[EventBody] = []
        for line in lines:
            bodies += [body for body in self._bodies(line) if not isinstance(body, LogWritten)]
        if bodies:
            await self.tell(*bodies)
        return lines

    def _task(self, protocol: EvaluationProtocol, lines: list[LedgerLine], herald: Herald) -> EvaluationWorkflow:
        per_outcome = self.spec.videos_per_outcome
        mine = [line for line in lines if line.protocol_hash == protocol.hash]
        films = [line.played.outcome for line in mine if line.video is not None]
        limits = self.pool.limits
        return EvaluationWorkflow(
            protocol=protocol,
            policy=self.adapter.policy,
            payer=self.payer,
            service=self.service,
            pool=self.pool,
            parallel=min(self.spec.parallel, limits.seats_total, limits.seats_per_tenant),
            shelf=VideoShelf(self.films, per_outcome, films) if per_outcome else None,
            witness=_TaskWitness(job=self, protocol=protocol, herald=herald),
            owed=self._owed,
            finished={line.played.record.seed: line.played for line in mine},
        )

    async def keep(self, protocol: EvaluationProtocol, played: Played) -> EpisodeRecord:
        """Film, line, events, in this order: whatever is killed in between, every episode is told once."""
        video = None
        if played.record.video is not None:
            video = await self.keep_video(Path(played.record.video), _facts(protocol, played))
            record = played.record.model_copy(update={"video": video.artifact_id})
            played = played.model_copy(update={"record": record})
        line = LedgerLine(environment=protocol.environment, protocol_hash=protocol.hash, played=played, video=video)
        async with self._writing:  # the order of the lines is the order of the curves
            await self.durable(functools.partial(self.ledger.append, line))
            await self.tell(*self._bodies(line))
        return played.record

    def _bodies(self, line: LedgerLine) -> list[EventBody]:
        record = line.played.record
        bodies: list[EventBody] = [] if line.video is None else [line.video]
        if record.error is not None:
            text = f"{line.environment}, seed {record.seed} counts as a failure: {record.error}"
            bodies.append(LogWritten(level="warning", message=text))
        return [*bodies, self._progress.add(line.played)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskWitness:
    """Of one task of the job."""

    job: EvaluationJob
    protocol: EvaluationProtocol
    herald: Herald

    def waits(self, wait: SeatWait) -> None:
        self.herald.seats(wait)

    async def used(self, use: EnvironmentUse) -> None:
        await self.job.meter(use)

    async def ended(self, played: Played) -> EpisodeRecord:
        return await self.job.keep(self.protocol, played)


def _facts(protocol: EvaluationProtocol, played: Played) -> dict[str, object]:
    """What a film shows."""
    record = played.record
    return {
        "task": protocol.environment,
        "seed": record.seed,
        "outcome": played.outcome,
        "success_once": record.success_once,
        "steps": record.steps,
        "return": record.return_,
        "policy_version": protocol.policy_version,
        "adapter_id": protocol.adapter_id,
        "instruction": played.instruction,
        "protocol_hash": protocol.hash,
    }
