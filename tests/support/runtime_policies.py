"""Jobs that start from a policy, on a real runtime: a small policy made once, and messages that ask for its use."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runtime.environments.record import main as record
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import (
    ArtifactPublished,
    DatasetBinding,
    Event,
    PolicyBinding,
    SubmitJob,
    WorkloadState,
)
from gpu_runtime.protocol.policy_specs import EvaluationJobSpec, RlJobSpec, RolloutJobSpec
from gpu_runtime.protocol.specs import SftJobSpec
from tests.support.demonstrations import bind
from tests.support.environments import REACH
from tests.support.runtime import ended, events_of, make_config, running

SIZE, HORIZON = 32, 4
_KINDS: dict[str, Any] = {"evaluation": EvaluationJobSpec, "rl": RlJobSpec, "rollout": RolloutJobSpec}


def record_reach(datasets: Path, episodes: int = 24) -> DatasetBinding:
    """Demonstrations of the scripted expert under the dataset root."""
    folder = datasets / "reach"
    assert record(["--env", REACH, "--episodes", str(episodes), "--out", str(folder), "--size", str(SIZE)]) == 0
    return bind(datasets, folder)


def reach_message(binding: DatasetBinding, *, cameras: bool, steps: int = 150, **head: Any) -> SubmitJob:
    """Fine-tuning that makes a small policy of reach. Without ``cameras`` it acts on its state alone, well."""
    mlp = {"type": "mlp", "horizon": HORIZON, "width": 64, "blocks": 1, "pca_dims": 16, "pca_frames": 64}
    dataset: dict[str, Any] = {"id": binding.version_id, "image_size": SIZE}
    if not cameras:
        mlp["tap"], dataset["cameras"] = "layer:-1", []
    training = {"steps": steps, "batch_size": 16, "evaluate_every": steps, "checkpoint_every": steps}
    spec = {
        "kind": "sft",
        "name": "teacher",
        "base_model": "tiny-qwen3-vl",
        "head": head or mlp,
        "dataset": dataset,
        "training": training,
        "optimizer": {"lr": 3e-3, "warmup_steps": 10},
    }
    return SubmitJob(
        job_id="teacher", attempt=1, tenant_id="alice", spec=SftJobSpec.model_validate(spec), dataset=binding
    )


async def learned(runtime: LocalRuntime, submit: SubmitJob) -> PolicyBinding:
    """Run a fine-tuning job; its adapter, as the control plane would bind it."""
    await runtime.master.submit(submit)
    status = await ended(runtime, submit, 180)
    assert status.state is WorkloadState.SUCCEEDED, status
    (adapter,) = artifacts_of(events_of(runtime, submit.job_id), "adapter")
    return PolicyBinding(artifact_id=adapter.artifact_id, sha256=adapter.sha256, base_model="tiny-qwen3-vl")


def artifacts_of(events: list[Event], kind: str) -> list[ArtifactPublished]:
    """What was published of one kind, in order."""
    return [event.body for event in events if event.body.type == "artifact" and event.body.kind == kind]


@dataclass(frozen=True, kw_only=True)
class Shelved:
    """A policy made once per module; ``install`` puts its files where a runtime on ``state`` finds them."""

    binding: PolicyBinding
    artifacts: Path

    @classmethod
    def make(cls, folder: Path, *, cameras: bool, steps: int = 150, **head: Any) -> "Shelved":
        """Record, train, export; on an event loop of its own, so that fixtures of a module can keep it."""
        datasets = folder / "datasets"
        datasets.mkdir()
        message = reach_message(record_reach(datasets), cameras=cameras, steps=steps, **head)

        async def train() -> PolicyBinding:
            async with running(make_config(folder / "state", datasets)) as runtime:
                return await learned(runtime, message)

        return cls(binding=asyncio.run(train()), artifacts=folder / "state" / "artifacts")

    def install(self, state: Path) -> PolicyBinding:
        """Before the runtime starts."""
        shutil.copytree(self.artifacts, state / "artifacts")
        return self.binding


def policy_message(
    binding: PolicyBinding,
    kind: str = "evaluation",
    *,
    job_id: str = "job",
    tenant_id: str = "alice",
    environment: dict[str, Any] | None = None,
    **spec: Any,
) -> SubmitJob:
    """A job of ``kind`` on this policy; in reach unless told otherwise. ``spec``: further fields of it."""
    task = {"id": REACH} | (environment or {})
    where = {"environments": [task]} if kind == "evaluation" else {"environment": task}
    fields = {"kind": kind, "name": f"{kind} of {tenant_id}", "policy": {"artifact": "artifact-id"}} | where | spec
    return SubmitJob(
        job_id=job_id, attempt=1, tenant_id=tenant_id, spec=_KINDS[kind].model_validate(fields), policy=binding
    )
