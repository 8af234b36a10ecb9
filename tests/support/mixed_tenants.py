"""The demo's tenants on a bare runtime process: no database, no web tier, everything from the journal's events."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from control_plane.demo import specifications
from control_plane.demo.scenario import Demonstrations, Participant
from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.messages import ArtifactPublished, DatasetBinding, Event, PolicyBinding, SubmitJob
from tests.support.demonstrations import bind
from tests.support.runtime import REPOSITORY, RuntimeProcess

JOB_LIMIT_S = 1800.0


def record(wanted: Sequence[Demonstrations], folder: Path) -> dict[Demonstrations, DatasetBinding]:
    """Demonstrations of scripted experts in ``folder``, those that are there already as they are, validated."""
    folder.mkdir(parents=True, exist_ok=True)
    bindings = {}
    for what in dict.fromkeys(wanted):
        path = folder / what.folder
        if not path.exists():
            command = [sys.executable, "-m", "gpu_runtime", "record", "--env", what.environment]
            command += ["--episodes", str(what.episodes), "--out", str(path), "--cameras", what.cameras]
            command += ["--state", what.state, "--size", str(what.image_size), "--seed", str(what.seed)]
            subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=True)
        bindings[what] = bind(folder, path)
    return bindings


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A participant with its data; ``policy``: the start policy, once there is one."""

    who: Participant
    dataset: DatasetBinding
    policy: PolicyBinding | None = None

    @property
    def tenant_id(self) -> str:
        return self.who.email.partition("@")[0]

    def start_job(self, job_id: str) -> SubmitJob:
        return self._submit(job_id, specifications.start(self.who, self.dataset.version_id), on_data=True)

    def main_job(self, job_id: str) -> SubmitJob:
        artifact = self.policy.artifact_id if self.policy else ""
        spec = specifications.main(self.who, self.dataset.version_id, artifact)
        return self._submit(job_id, spec, on_data=spec["kind"] == "sft")

    def evaluation_job(self, job_id: str) -> SubmitJob:
        assert self.policy is not None
        spec = specifications.evaluation(self.who, self.policy.artifact_id, job_id, videos=0)
        return self._submit(job_id, spec, on_data=False)

    def _submit(self, job_id: str, spec: dict[str, Any], *, on_data: bool) -> SubmitJob:
        return SubmitJob(
            job_id=job_id,
            attempt=1,
            tenant_id=self.tenant_id,
            spec=TypeAdapter(JobSpec).validate_python(spec),
            dataset=self.dataset if on_data else None,
            policy=None if on_data else self.policy,
        )


def run_jobs(runtime: RuntimeProcess, jobs: Sequence[SubmitJob]) -> None:
    """Submit all at once and wait for all; a job that does not succeed is an error with its reason."""
    for job in jobs:
        answer = runtime.submit(job)
        assert answer.is_success, answer.text
    for job in jobs:
        status = runtime.until_ended(job.job_id, JOB_LIMIT_S)
        if status.state != "succeeded":
            raise RuntimeError(f"{job.job_id} {status.state}: {status.reason} {status.message}")


def policy_of(events: Sequence[Event], job_id: str, base_model: str) -> PolicyBinding:
    """The adapter a job published, as the control plane would bind it."""
    for event in events:
        body = event.body
        if event.job_id == job_id and isinstance(body, ArtifactPublished) and body.kind == "adapter":
            return PolicyBinding(artifact_id=body.artifact_id, sha256=body.sha256, base_model=base_model)
    raise LookupError(f"job {job_id!r} published no adapter")
