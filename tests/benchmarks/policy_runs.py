"""Demonstrations recorded once, jobs through the platform's own path in this process, and fresh episodes played."""

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runtime.environments.record import main as record
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import DatasetBinding, PolicyBinding, SubmitJob, WorkloadState
from gpu_runtime.protocol.policy_specs import RlJobSpec
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.workflows.evaluate_cli import evaluate_adapter
from gpu_runtime.workflows.wilson import SuccessRate, success_rate
from tests.benchmarks.policy_recipes import RECIPES, Recipe, RlRecipe
from tests.support.demonstrations import bind
from tests.support.runtime import ended, events_of

EPISODES = 50
FIRST_SEED = 50_000  # demonstrations count up from 0
BASE = "tiny-qwen3-vl"
JOB_TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A published policy, as later jobs are bound to it, and how its job went. ``metrics``: the last of each."""

    adapter: Path
    binding: PolicyBinding
    train_s: float
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Episodes that luck had not solved at their reset."""

    success: SuccessRate
    mean_steps: float | None
    wall_s: float


def demonstrations(recipe: Recipe, work: Path) -> DatasetBinding:
    """Recorded now, or taken from ``work`` where an earlier run left them."""
    root = work / "datasets"
    root.mkdir(parents=True, exist_ok=True)
    path = root / recipe.recording
    if not path.exists():
        asked = ["--env", recipe.environment, "--state", recipe.state, "--episodes", str(recipe.episodes)]
        asked += ["--size", str(recipe.image_size), "--out", str(path)]
        if recipe.cameras is not None:
            asked += ["--cameras", recipe.cameras]
        with contextlib.redirect_stdout(sys.stderr):  # the table has standard output to itself
            status = record(asked)
        if status:
            raise SystemExit(status)
    return bind(root, path)


def sft_job(name: str, recipe: Recipe, binding: DatasetBinding, *, seed: int) -> SubmitJob:
    """The recipe as a tenant submits it."""
    training = {"seed": seed, "evaluate_every": recipe.training["steps"], "checkpoint_every": recipe.training["steps"]}
    spec = SftJobSpec.model_validate(
        {
            "kind": "sft",
            "name": recipe.title,
            "base_model": BASE,
            "head": dict(recipe.head),
            "dataset": {"id": binding.version_id, "image_size": recipe.image_size},
            "training": training | dict(recipe.training),
            "optimizer": dict(recipe.optimizer),
        }
    )
    return SubmitJob(job_id=f"{name}-{seed}", attempt=1, tenant_id="bench", spec=spec, dataset=binding)


def rl_job(name: str, recipe: RlRecipe, start: PolicyBinding, *, seed: int) -> SubmitJob:
    """The recipe as a tenant submits it, from a policy of its own."""
    begin = RECIPES[recipe.start]
    task = {"id": begin.environment, "state": begin.state, "max_steps": recipe.max_steps}
    spec = RlJobSpec.model_validate(
        {
            "kind": "rl",
            "name": recipe.title,
            "policy": {"artifact": start.artifact_id},
            "environment": task,
            "algorithm": dict(recipe.algorithm),
            "exploration": dict(recipe.exploration),
            "executed_steps": begin.executed_steps,
            "unexplored": list(recipe.unexplored),
            "collection": dict(recipe.collection),
            "training": {"seed": seed, "max_env_steps": recipe.env_steps_max} | dict(recipe.training),
            "optimizer": dict(recipe.optimizer),
        }
    )
    return SubmitJob(job_id=f"{name}-{seed}", attempt=1, tenant_id="bench", spec=spec, policy=start)


async def run_job(runtime: LocalRuntime, submit: SubmitJob) -> Trained:
    """Submit and wait for the end. Raises RuntimeError with the job's own reason when it fails."""
    started_s = time.monotonic()
    await runtime.master.submit(submit)
    status = await ended(runtime, submit, JOB_TIMEOUT_S)
    if status.state is not WorkloadState.SUCCEEDED:
        raise RuntimeError(f"{submit.job_id}: {status.state}, {status.reason}: {status.message}")
    train_s, events = time.monotonic() - started_s, [event.body for event in events_of(runtime, submit.job_id)]
    (adapter,) = (body for body in events if body.type == "artifact" and body.kind == "adapter")
    return Trained(
        adapter=runtime.config.state / "artifacts" / adapter.artifact_id,
        binding=PolicyBinding(artifact_id=adapter.artifact_id, sha256=adapter.sha256, base_model=BASE),
        train_s=train_s,
        metrics={name: value for body in events if body.type == "metrics" for name, value in body.values.items()},
    )


async def play(recipe: Recipe, adapter: Path, *, parallel: int) -> Played:
    """``EPISODES`` fresh episodes none of which was solved at its reset."""
    first, successes, counted, wall_s = FIRST_SEED, 0, 0, 0.0
    steps: list[float] = []
    while counted < EPISODES:
        wanted = EPISODES - counted
        result = await evaluate_adapter(_options(recipe, adapter, first=first, episodes=wanted, parallel=parallel))
        if result.errors:
            raise RuntimeError(f"{adapter.name}: {result.errors[0].message}")
        first, counted = first + wanted, counted + result.counted
        successes, wall_s = successes + result.success_once.successes, wall_s + result.wall_s
        steps += [record.steps for record in result.episodes if record.seed not in result.solved_at_reset]
    return Played(success=success_rate(successes, counted), mean_steps=sum(steps) / len(steps), wall_s=wall_s)


def _options(recipe: Recipe, adapter: Path, *, first: int, episodes: int, parallel: int) -> argparse.Namespace:
    """As ``python -m gpu_runtime evaluate`` reads them."""
    options: dict[str, Any] = {
        "adapter": adapter,
        "env": recipe.environment,
        "state": recipe.state,
        "episodes": episodes,
        "first_seed": first,
        "max_steps": recipe.max_steps,
        "execute": recipe.executed_steps,
        "parallel": parallel,
        "base": None,
        "device": "cpu",
        "go_on": False,
        "videos": None,
        "videos_per_outcome": 0,
        "progress_json": False,
    }
    return argparse.Namespace(**options)
