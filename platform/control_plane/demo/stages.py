"""The demo's stages: what every tenant submits next, all at once, and what it has when all have ended."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from control_plane.demo import specifications
from control_plane.demo.follow import Followed, follow
from control_plane.demo.labs import Lab
from control_plane.demo.progress import say
from control_plane.demo.scenario import Demonstrations, Participant
from joynexus_client import Artifact, Client, Job

VALIDATION_LIMIT_S = 180.0


class Stage(StrEnum):
    """One job of each tenant."""

    START = "start"  # the policy of "before"
    BEFORE = "before"  # its evaluation
    MAIN = "main"  # reinforcement learning, or imitation
    AFTER = "after"  # the evaluation of what came out


@dataclass(slots=True, kw_only=True)
class TenantRun:
    """One participant on the platform; ``jobs`` as they ended."""

    who: Participant
    client: Client
    recording: Path
    version_id: str
    jobs: dict[Stage, Job] = field(default_factory=dict)

    def artifacts(self, stage: Stage, kind: str) -> list[Artifact]:
        """What the stage's job published, newest first."""
        return [found for found in self.client.jobs.artifacts(self.jobs[stage]["id"]) if found["kind"] == kind]

    def adapter(self, stage: Stage) -> Artifact:
        """The policy a stage made."""
        found = self.artifacts(stage, "adapter")
        if not found:
            raise RuntimeError(f"{self.who.tenant}: job {self.jobs[stage]['id']} published no adapter")
        return found[0]


def open_runs(
    participants: Sequence[Participant], recordings: dict[Demonstrations, Path], labs: dict[str, Lab], url: str
) -> list[TenantRun]:
    """Upload every tenant's demonstrations and wait for their validation."""
    runs = []
    for who in participants:
        client, recording = Client(url, labs[who.email].api_key), recordings[who.demonstrations]
        version_id = _dataset_ready(client, who, recording)
        runs.append(TenantRun(who=who, client=client, recording=recording, version_id=version_id))
    return runs


def _dataset_ready(client: Client, who: Participant, recording: Path) -> str:
    """Id of a ready version of the recording: the one of an earlier run, or a new upload."""
    name = who.demonstrations.folder
    for dataset in client.datasets.list():
        if dataset["name"] == name:
            ready = [version for version in dataset["versions"] if version["state"] == "ready"]
            if ready:
                return str(ready[0]["id"])
    started_s = time.monotonic()
    version = client.datasets.upload(recording, name=name)
    version = client.datasets.wait_ready(version["id"], timeout_s=VALIDATION_LIMIT_S)
    summary = version["summary"] or {}
    say(
        f"  {who.tenant}: {who.demonstrations.name}: {summary['frames']} frames"
        f" validated in {time.monotonic() - started_s:.0f} s"
    )
    return str(version["id"])


def run_stage(runs: Sequence[TenantRun], stage: Stage, url: str) -> None:
    """Submit one job per tenant, together, and wait for all. Raises RuntimeError when one does not succeed."""
    followed = []
    for run in runs:
        job = run.client.jobs.submit(_SPECIFICATIONS[stage](run))
        say(f"  {run.who.tenant}: {job['name']}, {url}/jobs/{job['id']}/")
        followed.append(Followed(label=f"{run.who.tenant}, {run.who.algorithm}", client=run.client, job=job))
    for run, job in zip(runs, follow(followed), strict=True):
        run.jobs[stage] = job
        if job["state"] != "succeeded":
            raise RuntimeError(
                f"{run.who.tenant}: {job['name']} ({job['id']}) {job['state']}: {job['reason']} {job['message']}"
            )


_SPECIFICATIONS: dict[Stage, Callable[[TenantRun], dict[str, Any]]] = {
    Stage.START: lambda run: specifications.start(run.who, run.version_id),
    Stage.BEFORE: lambda run: specifications.evaluation(
        run.who, run.adapter(Stage.START)["id"], "before", videos=run.who.videos_before
    ),
    Stage.MAIN: lambda run: specifications.main(run.who, run.version_id, run.adapter(Stage.START)["id"]),
    Stage.AFTER: lambda run: specifications.evaluation(
        run.who, run.adapter(Stage.MAIN)["id"], "after", videos=run.who.videos_after
    ),
}
