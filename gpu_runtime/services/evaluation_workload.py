"""An evaluation as a workload: its episodes beside those of others, films as they are made, one report at the end."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from gpu_runtime.protocol.messages import ArtifactPublished, LogWritten, SubmitJob
from gpu_runtime.protocol.policy_specs import EvaluationJobSpec
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.environment_usage import EnvironmentUsage
from gpu_runtime.services.job_folder import job_folder
from gpu_runtime.services.parts import RuntimeParts
from gpu_runtime.services.policies import load_policy
from gpu_runtime.services.policy_place import PolicyPlace
from gpu_runtime.services.policy_workload import AttemptShelf, PolicyWorkload
from gpu_runtime.services.telling import AttemptTeller
from gpu_runtime.workflows.evaluate import Payer
from gpu_runtime.workflows.evaluate_job import EvaluationJob
from gpu_runtime.workflows.evaluation_ledger import EpisodeLedger
from gpu_runtime.workflows.evaluation_report import EvaluationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationShelf:
    """Films and reports of one attempt."""

    shelf: AttemptShelf
    artifacts: Artifacts

    async def keep_video(self, film: Path, manifest: dict[str, object]) -> ArtifactPublished:
        """Take over a film that is whole."""
        facts = self.shelf.facts("video", f"video-{film.stem}", film.stem, manifest)
        return await self.shelf.publish(functools.partial(self.artifacts.publish_file, film), facts)

    async def keep_report(self, report: EvaluationReport) -> ArtifactPublished:
        """The report in full; its manifest tells it without single episodes."""
        facts = self.shelf.facts("evaluation", "evaluation", self.shelf.submit.spec.name, report.summary())
        data = json.dumps(report.model_dump(mode="json", by_alias=True), indent=1).encode()
        return await self.shelf.publish(functools.partial(self.artifacts.publish_bytes, data, ".json"), facts)


def mount_evaluation(submit: SubmitJob, parts: RuntimeParts, resumed: bool) -> PolicyWorkload:
    """Load the policy; blocks on files. Raises PolicyUnusable, AdapterError."""
    spec, binding = submit.spec, submit.policy
    assert isinstance(spec, EvaluationJobSpec), spec.kind
    assert binding is not None, "checked by the message"
    policy = load_policy(binding, parts.artifacts, parts.bases)
    place = PolicyPlace(submit=submit, policy=policy, inference=parts.inference)
    own = AttemptShelf(submit=submit, policy_version=policy.version, durability=parts.durability, files=parts.files)
    shelf = EvaluationShelf(shelf=own, artifacts=parts.artifacts)
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
        durable=own.durable,
    )

    async def leave() -> tuple[ArtifactPublished, ...]:
        assert job.report is not None, "the run came to its end"
        return (await shelf.keep_report(job.report),)

    async def leave_early() -> tuple[ArtifactPublished, ...]:
        """No report, unless it was finished: success rates over episodes that nobody played would be invented, and
        over those that happened to end first they would be biased. Films and curves were told as they came about."""
        if job.report is not None:
            return await leave()
        text = "stopped before all planned episodes were played: a part of the plan makes no report"
        await job.tell(LogWritten(level="warning", message=text))
        return ()

    return PolicyWorkload(submit=submit, workflow=job, place=place, leave=leave, leave_early=leave_early)
