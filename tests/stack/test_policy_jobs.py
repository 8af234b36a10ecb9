"""A policy's life through the API, with the runtime killed while three jobs act with it: it improves, is judged, and
its own episodes become a dataset that is trained on."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.environments.record import main as record
from joynexus_client import Client, Job
from tests.support.environments import REACH
from tests.support.stack import Stack, assert_measured_is_metered

ITERATIONS, EVALUATED, KEPT = 12, 60, 12
REACH_STEPS = 20
DATASET = "episodes of the policy itself"


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A tenant with a policy of reach that acts on its state alone."""

    client: Client
    policy: str  # artifact id


def imitation(version_id: str, *, name: str, steps: int) -> dict[str, Any]:
    return {
        "kind": "sft",
        "name": name,
        "base_model": "tiny-qwen3-vl",
        "head": {"type": "mlp", "horizon": 4, "tap": "layer:-1", "width": 64, "blocks": 1, "pca_dims": 4},
        "dataset": {"id": version_id, "cameras": [], "image_size": 32},
        "training": {"steps": steps, "batch_size": 16, "evaluate_every": steps, "checkpoint_every": steps},
        "optimizer": {"lr": 3e-3, "warmup_steps": 10},
    }


@pytest.fixture(scope="module")
def lab(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Demonstrations without cameras, recorded, uploaded and imitated."""
    client = stack.client(stack.lab("Lab of policies"))
    folder = tmp_path_factory.mktemp("reach") / "demonstrations"
    assert record(["--env", REACH, "--episodes", "24", "--out", str(folder), "--cameras", "none"]) == 0
    version = client.datasets.wait_ready(client.datasets.upload(folder, name="reach")["id"], timeout_s=120)
    job = client.jobs.submit(imitation(version["id"], name="teacher", steps=150))
    assert client.jobs.wait(job["id"], timeout_s=150)["state"] == "succeeded"
    return Lab(client=client, policy=artifact(client, job["id"], "adapter")["id"])


def artifact(client: Client, job_id: str, kind: str) -> dict[str, Any]:
    (found,) = [dict(one) for one in client.jobs.artifacts(job_id) if one["kind"] == kind]
    return found


def policy_jobs(policy: str) -> list[dict[str, Any]]:
    """One job of each kind that acts with a policy."""
    environment = {"id": REACH, "max_steps": REACH_STEPS}
    common = {"policy": {"artifact": policy}}
    learn = {
        "kind": "rl",
        "name": "learn",
        "environment": environment,
        "algorithm": {"type": "grpo", "group_size": 4},
        "exploration": {"type": "gaussian", "log_std_init": -1.0},
        "executed_steps": 4,
        "collection": {"seats": 4, "episodes": 16, "reward": {"dense": "raw"}},
        "training": {"iterations": ITERATIONS, "epochs": 2, "minibatch_size": 64},
    }
    judge = {"kind": "evaluation", "name": "judge", "environments": [environment], "episodes": EVALUATED}
    collect = {"kind": "rollout", "name": "collect", "environment": environment, "episodes": KEPT}
    return [
        learn | common,
        judge | common | {"executed_steps": 1, "videos_per_outcome": 1},
        collect | common | {"executed_steps": 1, "dataset_name": DATASET, "only_successes": True},
    ]


def wait_until(condition: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def survived(stack: Stack, lab: Lab) -> dict[str, Job]:
    """The three jobs, run together; the runtime is killed when each is in the middle. By kind, as they ended."""
    ids = {spec["kind"]: lab.client.jobs.submit(spec)["id"] for spec in policy_jobs(lab.policy)}
    steps = {"rl": 2, "evaluation": 4, "rollout": 2}
    wait_until(
        lambda: all(lab.client.jobs.get(ids[kind])["step"] >= step for kind, step in steps.items()),
        f"{steps} were not reached",
    )
    before = {kind: lab.client.jobs.get(job_id)["state"] for kind, job_id in ids.items()}
    assert "running" in before.values(), f"too late: {before}"
    stack.kill("runtime")
    return {kind: lab.client.jobs.wait(job_id, timeout_s=240) for kind, job_id in ids.items()}


def test_every_kind_of_job_ends_well_after_kill_9_of_the_runtime_mid_rollout(survived: dict[str, Job]):
    ends = {kind: (job["state"], job["step"]) for kind, job in survived.items()}
    assert ends == {
        "rl": ("succeeded", ITERATIONS),
        "evaluation": ("succeeded", EVALUATED),
        "rollout": ("succeeded", KEPT),
    }, survived


def test_learning_went_on_where_it_was_and_each_version_was_told_once(lab: Lab, survived: dict[str, Job]):
    page = lab.client.jobs.metrics(survived["rl"]["id"], max_points=500)
    curves = {series["name"]: series for series in page["series"]}
    for name in ("train/policy_loss", "rollout/return"):
        assert curves[name]["step"] == list(range(1, ITERATIONS + 1)), name
    assert artifact(lab.client, survived["rl"]["id"], "adapter")["policy_version"] == ITERATIONS


def test_the_evaluation_has_one_episode_for_each_planned_seed(lab: Lab, survived: dict[str, Job], tmp_path: Path):
    report = artifact(lab.client, survived["evaluation"]["id"], "evaluation")
    (task,) = report["manifest"]["tasks"]
    assert (task["planned"], task["counted"], task["errors"]) == (EVALUATED, EVALUATED, [])
    success = task["success_once"]
    assert 0.0 <= success["low"] <= success["rate"] <= success["high"] <= 1.0
    films = [one for one in lab.client.jobs.artifacts(survived["evaluation"]["id"]) if one["kind"] == "video"]
    assert films
    film = lab.client.artifacts.download(films[0]["id"], to=tmp_path / "film.mp4")
    assert film.read_bytes()[4:8] == b"ftyp"


def test_what_was_measured_is_metered_and_what_was_done_twice_is_paid_once(
    stack: Stack, lab: Lab, survived: dict[str, Job]
):
    assert_measured_is_metered(stack)
    prices = {row["meter"]: row for row in lab.client.prices()}
    for kind, job in survived.items():
        usage = {row["meter"]: int(row["quantity"]) for row in lab.client.usage(job=job["id"])}
        paid = {line["meter"]: float(line["amount"]) for line in job["cost"]["lines"]}
        per_step = float(prices["env.steps"]["price"]["amount"]) / prices["env.steps"]["per"]
        paid_steps = round(paid["env.steps"] / per_step)
        assert 0 < paid_steps <= usage["env.steps"], kind
    played = _evaluated_steps(lab.client, survived["evaluation"]["id"])
    job = survived["evaluation"]
    paid = {line["meter"]: float(line["amount"]) for line in job["cost"]["lines"]}
    assert round(paid["env.steps"] / per_step) <= played  # episodes in flight at the kill are redone for nothing


def _evaluated_steps(client: Client, job_id: str) -> int:
    (task,) = artifact(client, job_id, "evaluation")["manifest"]["tasks"]
    return round(task["mean_steps"] * (task["counted"] - len(task["errors"])))


def test_the_collected_episodes_are_a_dataset_that_imitation_trains_on_at_once(lab: Lab, survived: dict[str, Job]):
    def versions() -> list[dict[str, Any]]:
        found = [dataset for dataset in lab.client.datasets.list() if dataset["name"] == DATASET]
        return [version for dataset in found for version in dataset["versions"]]

    wait_until(lambda: any(version["state"] == "ready" for version in versions()), "the dataset is not ready")
    (version,) = versions()
    summary = lab.client.datasets.version(version["id"])["summary"]
    assert summary is not None
    assert summary["episodes"] == KEPT
    job = lab.client.jobs.submit(imitation(version["id"], name="pupil", steps=20))
    assert lab.client.jobs.wait(job["id"], timeout_s=150)["state"] == "succeeded"
