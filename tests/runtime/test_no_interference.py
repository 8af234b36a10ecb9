"""Nobody's learning depends on who else is there: each of four tenants alone, and all of them together."""

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpu_runtime.protocol.messages import (
    DatasetBinding,
    Event,
    PolicyBinding,
    SpanMeasured,
    SubmitJob,
    WorkloadState,
)
from gpu_runtime.training.queue import Payload
from gpu_runtime.training.rl.advantages import assemble
from gpu_runtime.training.rl.batch import RlBatch
from gpu_runtime.workflows.rl import RlWorkflow
from gpu_runtime.workflows.rl_batches import PlayedBatch
from tests.support.books import check_books, written
from tests.support.runtime import ended, make_config, metric, running
from tests.support.runtime_policies import learned, policy_message, reach_message, record_reach

FLOW = {
    "type": "gr00t", "horizon": 4, "tap": "layer:-1", "width": 32, "layers": 1, "heads": 2, "output_width": 32,
    "future_tokens": 2, "noise_draws": 2, "dropout": 0.1,
}  # fmt: skip
SFT_STEPS, ITERATIONS = 24, 3


@dataclass(frozen=True, kw_only=True)
class School:
    """Demonstrations, one start policy for each kind of head, and the runtime's files in which they lie."""

    datasets: Path
    binding: DatasetBinding
    artifacts: Path
    mlp: PolicyBinding
    flow: PolicyBinding

    def jobs(self) -> list[SubmitJob]:
        """PPO, GRPO with an MLP, GRPO with a flow head, and imitation from pixels: one tenant each."""
        gaussian, flow_sde = {"type": "gaussian", "log_std_init": -1.0}, {"type": "flow_sde"}
        grpo = {"type": "grpo", "group_size": 2}
        camera = reach_message(self.binding, cameras=True, steps=SFT_STEPS)
        return [
            _learner(self.mlp, "ppo", {"type": "ppo", "value": {"hidden": [16]}}, gaussian),
            _learner(self.mlp, "grpo", grpo, gaussian),
            _learner(self.flow, "flow", grpo, flow_sde),
            camera.model_copy(update={"job_id": "sft", "tenant_id": "sft"}),
        ]


def _learner(policy: PolicyBinding, name: str, algorithm: dict, exploration: dict) -> SubmitJob:
    """Strictly in turn: what is played is then a function of the seed alone."""
    return policy_message(
        policy,
        "rl",
        job_id=name,
        tenant_id=name,
        environment={"max_steps": 12},
        algorithm=algorithm,
        exploration=exploration,
        executed_steps=4,
        collection={"seats": 4, "processes": 1, "episodes": 8, "max_staleness": 0},
        training={"iterations": ITERATIONS, "epochs": 2, "minibatch_size": 8, "seed": 5},
        optimizer={"lr": 3e-4, "schedule": "constant", "warmup_steps": 0},
    )


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> School:
    folder = tmp_path_factory.mktemp("school")
    datasets = folder / "datasets"
    datasets.mkdir()
    binding = record_reach(datasets, episodes=12)

    async def train() -> list[PolicyBinding]:
        async with running(make_config(folder / "state", datasets)) as runtime:
            made = []
            for name, head in (("mlp", {}), ("flow", FLOW)):
                message = reach_message(binding, cameras=False, steps=30, **head)
                made.append(await learned(runtime, message.model_copy(update={"job_id": name})))
            return made

    mlp, flow = asyncio.run(train())
    artifacts = folder / "state" / "artifacts"
    return School(datasets=datasets, binding=binding, artifacts=artifacts, mlp=mlp, flow=flow)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one arrangement left behind. ``batches`` by job, in order."""

    events: list[Event]
    batches: dict[str, list[RlBatch]]

    def curve(self, job_id: str, name: str) -> list[tuple[int, float]]:
        return metric([event for event in self.events if event.job_id == job_id], name)

    def spans(self, service: str) -> list[SpanMeasured]:
        bodies = [event.body for event in self.events]
        return [body for body in bodies if body.type == "span" and body.service == service and body.group_size]


def arrange(school: School, jobs: Sequence[SubmitJob], state: Path) -> Seen:
    """Run these jobs side by side on a fresh runtime, and keep what the learners were taught with."""
    batches: dict[str, list[RlBatch]] = defaultdict(list)
    payload = RlWorkflow._payload

    def listening(workflow: RlWorkflow, played: PlayedBatch) -> Payload:
        batches[workflow.job.job_id].append(assemble(workflow.spec.algorithm, played.episodes))
        return payload(workflow, played)

    async def run() -> None:
        async with running(make_config(state, school.datasets)) as runtime:
            for job in jobs:
                await runtime.master.submit(job)
            for job in jobs:
                status = await ended(runtime, job, 180)
                assert status.state is WorkloadState.SUCCEEDED, status

    shutil.copytree(school.artifacts, state / "artifacts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RlWorkflow, "_payload", listening)
        asyncio.run(run())
    return Seen(events=written(state), batches=batches)


@pytest.fixture(scope="module")
def together(school: School, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return arrange(school, school.jobs(), tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def alone(school: School, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return {job.job_id: arrange(school, [job], tmp_path_factory.mktemp(job.job_id)) for job in school.jobs()}


def test_the_tenants_did_share_forwards_when_they_were_together(together: Seen) -> None:
    """Otherwise the other tests would compare nothing."""
    shared = [span for span in together.spans("inference") if len(span.shares) > 1]
    assert shared
    assert {tenant for span in shared for tenant in span.shares} == {"ppo", "grpo", "flow"}
    assert {tenant for span in together.spans("training") for tenant in span.shares} == {"ppo", "grpo", "flow", "sft"}


def test_the_losses_of_an_imitator_are_those_it_has_alone(together: Seen, alone: dict[str, Seen]) -> None:
    expected, found = (dict(seen.curve("sft", "train/loss")) for seen in (alone["sft"], together))
    assert sorted(found) == list(range(1, SFT_STEPS + 1))
    for step, loss in expected.items():
        assert found[step] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("name", ["ppo", "grpo", "flow"])
def test_a_learner_sees_does_and_thinks_the_same_as_alone(name: str, together: Seen, alone: dict[str, Seen]) -> None:
    expected, found = alone[name].batches[name], together.batches[name]
    assert len(expected) == len(found) == ITERATIONS
    for mine, beside in zip(expected, found, strict=True):
        assert mine.state_NS is not None
        assert beside.state_NS is not None
        np.testing.assert_array_equal(beside.state_NS, mine.state_NS)
        assert set(beside.trace) == set(mine.trace) >= {"log_prob"}
        for part, values in mine.trace.items():
            np.testing.assert_array_equal(beside.trace[part], values, err_msg=part)
        np.testing.assert_array_equal(beside.advantage_N, mine.advantage_N)


@pytest.mark.parametrize("name", ["ppo", "grpo", "flow"])
def test_the_trajectory_of_a_learner_is_the_one_it_has_alone(
    name: str, together: Seen, alone: dict[str, Seen]
) -> None:
    for curve in ("rollout/return", "rollout/success_once", "train/policy_loss", "train/approx_kl"):
        expected, found = (dict(seen.curve(name, curve)) for seen in (alone[name], together))
        assert sorted(expected) == list(range(1, ITERATIONS + 1)), curve
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-12), curve


def test_learning_did_change_what_the_learners_do(together: Seen) -> None:
    """A policy that never moves would be the same in any company."""
    for name in ("ppo", "grpo", "flow"):
        assert {int(version) for batch in together.batches[name] for version in batch.version_N} == {0, 1, 2}
        losses = [value for _, value in together.curve(name, "train/grad_norm_actor")]
        assert max(losses) > 0


def test_bills_add_up_to_the_measured_time_of_all_three_services(together: Seen, alone: dict[str, Seen]) -> None:
    for seen in (together, *alone.values()):
        check_books(seen.events)
    assert all(together.spans(service) for service in ("training", "inference", "environment"))
