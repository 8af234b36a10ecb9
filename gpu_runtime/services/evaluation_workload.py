"""An evaluation as a workload: a policy that is served, its episodes, and the report at the end."""

import functools
import json
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gpu_runtime.protocol.messages import ArtifactPublished, SubmitJob
from gpu_runtime.protocol.policy_specs import EvaluationJobSpec
from gpu_runtime.services.artifacts import ArtifactFacts, Artifacts
from gpu_runtime.services.environment_usage import EnvironmentUsage
from gpu_runtime.services.job_folder import job_folder
from gpu_runtime.services.parts import RuntimeParts
from gpu_runtime.services.policies import load_policy
from gpu_runtime.services.policy_place import PolicyPlace
from gpu_runtime.services.running import StoppableRun
from gpu_runtime.services.telling import AttemptTeller
from gpu_runtime.store.durability import Durability
from gpu_runtime.workflows.evaluate import Payer
from gpu_runtime.workflows.evaluate_job import EvaluationJob
from gpu_runtime.workflows.evaluation_ledger import EpisodeLedger

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationShelf:
    """Where films and the report of one attempt become artifacts."""

    submit: SubmitJob
    policy_version: int
    artifacts: Artifacts
    durability: Durability
    files: Executor

    async def durable(self, action: Callable[[], T]) -> T:
        """Run a blocking write until the disk takes it."""
        return await self.durability.persist(action, self.files)

    async def keep_video(self, film: Path, manifest: dict[str, object]) -> ArtifactPublished:
        """Take over a film that is whole."""
        facts = self._facts("video", f"video-{film.stem}", film.stem, manifest)
        return await self.durable(functools.partial(self.artifacts.publish_file, film, facts))

    async def keep_report(self, text: str, summary: dict[str, object]) -> ArtifactPublished:
        """The report in full; its manifest tells it without single episodes."""
        facts = self._facts("evaluation", "evaluation", self.submit.spec.name, summary)
        publish = functools.partial(self.artifacts.publish_bytes, text.encode(), ".json", facts)
        return await self.durable(publish)

    def _facts(self, kind: str, suffix: str, name: str, manifest: dict[str, object]) -> ArtifactFacts:
        return ArtifactFacts(
            artifact_id=f"{self.submit.job_id}-{self.submit.attempt}-{suffix}",
            kind=kind,  # type: ignore[arg-type]
            name=name,
            policy_version=self.policy_version,
            manifest=manifest,
        )


@dataclass(slots=True, kw_only=True)
class EvaluationWorkload:
    """See ``workload.Workload``. Every ended episode is durable at once: there is nothing to save."""

    submit: SubmitJob
    job: EvaluationJob
    place: PolicyPlace
    shelf: EvaluationShelf
    warnings: tuple[str, ...] = ()
    _running: StoppableRun = field(init=False, default_factory=StoppableRun)

    @property
    def step(self) -> int:
        return self.job.step

    @property
    def total_steps(self) -> int:
        return self.submit.spec.total_steps

    async def start(self) -> None:
        self.place.open()

    async def run(self) -> None:
        await self._running.run(self.job.run())

    def stop(self, reason: str) -> None:
        self._running.stop()

    async def save(self) -> None:
        """Nothing is only in memory."""

    async def publish(self) -> tuple[ArtifactPublished, ...]:
        report = self.job.report
        assert report is not None, "the run came to its end"
        text = json.dumps(report.model_dump(mode="json", by_alias=True), indent=1)
        return (await self.shelf.keep_report(text, report.summary()),)

    async def close(self) -> None:
        self.place.close()


def mount_evaluation(submit: SubmitJob, parts: RuntimeParts, resumed: bool) -> EvaluationWorkload:
    """Load the policy; blocks on files. Raises PolicyUnusable, AdapterError."""
    spec, binding = submit.spec, submit.policy
    assert isinstance(spec, EvaluationJobSpec), spec.kind
    assert binding is not None, "checked by the message"
    policy = load_policy(binding, parts.artifacts, parts.bases)
    place = PolicyPlace(submit=submit, policy=policy, inference=parts.inference)
    shelf = EvaluationShelf(
        submit=submit,
        policy_version=policy.version,
        artifacts=parts.artifacts,
        durability=parts.durability,
        files=parts.files,
    )
    folder = job_folder(parts.config.state, submit)
    films = folder / "films"
    films.mkdir(parents=True, exist_ok=True)
    job = EvaluationJob(
        spec=spec,
        adapter=policy.adapter,
        payer=Payer(tenant_id=submit.tenant_id, job_id=submit.job_id, attempt=submit.attempt, slot_id=place.slot_id),
        service=parts.inference,
        pool=parts.pool,
        ledger=EpisodeLedger(folder / "episodes.jsonl"),
        films=films,
        tell=AttemptTeller(submit=submit, durability=parts.durability, metrics_are_steps=True),
        meter=EnvironmentUsage(submit=submit, durability=parts.durability),
        keep_video=shelf.keep_video,
        durable=shelf.durable,
    )
    return EvaluationWorkload(submit=submit, job=job, place=place, shelf=shelf)
