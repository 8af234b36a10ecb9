"""Evaluation, rollouts and reinforcement learning play a policy with LoRA: always on its own adapted features."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.inference import step as inference_step
from gpu_runtime.inference.messages import PredictReply, PredictRequest
from gpu_runtime.models.lora.encode import encode_with
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import ArtifactPublished, PolicyBinding, SubmitJob, WorkloadState
from gpu_runtime.training import step as training_step
from tests.support.books import check_books, usage_by_meter, written
from tests.support.lora_jobs import Alone, Witness, fresh_base, make_policies, unlike
from tests.support.runtime import ended, events_of, make_config, metric, running
from tests.support.runtime_policies import Shelved, artifacts_of, policy_message

EVALUATION: dict[str, Any] = {"episodes": 3, "parallel": 2, "videos_per_outcome": 0, "executed_steps": 4}
PPO: dict[str, Any] = {
    "algorithm": {"type": "ppo", "value": {"hidden": [16]}},
    "exploration": {"type": "gaussian"},
    "executed_steps": 4,
    "collection": {"seats": 2, "episodes": 2, "max_staleness": 0},  # which version plays doesn't depend on time
    "training": {"iterations": 2, "epochs": 2, "checkpoint_every": 1},
}
SHORT = {"max_steps": 12}


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Shelved]:
    return make_policies(tmp_path_factory.mktemp("policies"))


@pytest.fixture(scope="module")
def alone(policies: Mapping[str, Shelved], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Alone]:
    """Each policy from its archive."""
    folder, base = tmp_path_factory.mktemp("alone"), fresh_base()
    return {
        name: Alone.unpacked(made.artifacts / f"{made.binding.artifact_id}.zip", folder / name, base)
        for name, made in policies.items()
    }


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    (tmp_path / "datasets").mkdir()
    return tmp_path / "datasets"


@pytest.fixture
def state(tmp_path: Path, policies: Mapping[str, Shelved]) -> Path:
    """A state folder that holds every policy."""
    policies["adapted"].install(tmp_path / "state")
    return tmp_path / "state"


async def succeed(runtime: LocalRuntime, *submits: SubmitJob) -> None:
    """All at once, to the end."""
    for submit in submits:
        await runtime.master.submit(submit)
    for submit in submits:
        status = await ended(runtime, submit, 120)
        assert status.state is WorkloadState.SUCCEEDED, status


async def test_an_evaluation_plays_the_adapted_policy_and_a_base_without_the_adapter_is_noticed(
    state, datasets, policies, alone, monkeypatch
) -> None:
    submit = policy_message(policies["adapted"].binding, environment=SHORT, **EVALUATION)
    with monkeypatch.context() as patch:
        seen = Witness.watching(patch)
        async with running(make_config(state, datasets)) as runtime:
            await succeed(runtime, submit)
            assert len(artifacts_of(events_of(runtime), "evaluation")) == 1
    assert seen.answered("job") == usage_by_meter(written(state, "job"))["predict.chunks"] >= 3
    assert seen.differences("job", alone["adapted"]) == []
    assert len(seen.differences("job", alone["frozen"])) == 2 * len(seen.answers)
    check_books(written(state))


@pytest.mark.parametrize("kind", ["evaluation", "rl"])
async def test_a_planted_forward_that_ignores_the_adapter_is_noticed(
    kind, state, datasets, policies, alone, monkeypatch
) -> None:
    def ignoring(backbone, features, taps, adapters, **options):
        return encode_with(backbone, features, taps, [None] * len(adapters), **options)

    seen = Witness.watching(monkeypatch)
    monkeypatch.setattr(inference_step, "encode_with", ignoring)
    monkeypatch.setattr(training_step, "encode_with", ignoring)
    options = EVALUATION if kind == "evaluation" else PPO
    submit = policy_message(policies["adapted"].binding, kind, environment=SHORT, **options)
    async with running(make_config(state, datasets, handle_bytes=0)) as runtime:
        await succeed(runtime, submit)
    assert len(seen.differences("job", alone["adapted"])) >= len(seen.answers) > 0
    for batch, features in seen.batches:
        assert unlike(batch, features, alone["adapted"]) == list(range(len(batch)))
    assert bool(seen.batches) == (kind == "rl")


async def test_a_rollout_job_records_what_the_adapted_policy_does(
    state, datasets, policies, alone, monkeypatch
) -> None:
    submit = policy_message(
        policies["adapted"].binding, "rollout", environment=SHORT, episodes=3, dataset_name="own", executed_steps=4
    )
    with monkeypatch.context() as patch:
        seen = Witness.watching(patch)
        async with running(make_config(state, datasets)) as runtime:
            await succeed(runtime, submit)
            (published,) = artifacts_of(events_of(runtime), "dataset")
    assert published.manifest["episodes"] == 3
    assert seen.answered("job") >= 3
    assert seen.differences("job", alone["adapted"]) == []
    check_books(written(state))


async def reinforced(state: Path, datasets: Path, submit: SubmitJob, **settings: int) -> list[list[tuple[int, float]]]:
    """What an RL job tells of its learning."""
    async with running(make_config(state, datasets, **settings)) as runtime:
        await succeed(runtime, submit)
        events = events_of(runtime, "job")
    names = ("train/policy_loss", "train/value_loss", "train/grad_norm_actor", "rollout/env_steps")
    found = [metric(events, name) for name in names]
    assert [len(values) for values in found] == [2] * len(names)
    return found


async def test_reinforcement_learning_plays_and_trains_on_adapted_features_with_handles_and_without(
    tmp_path, state, datasets, policies, alone, monkeypatch
) -> None:
    submit = policy_message(policies["adapted"].binding, "rl", environment=SHORT, **PPO)
    told = []
    for number, settings in enumerate(({}, {"handle_bytes": 0})):
        folder = state if number == 0 else tmp_path / "again"
        if number:
            policies["adapted"].install(folder)
        with monkeypatch.context() as patch:
            seen = Witness.watching(patch)
            told.append(await reinforced(folder, datasets, submit, **settings))
        assert seen.differences("job", alone["adapted"]) == []
        assert len(seen.batches) == 2
        for batch, features in seen.batches:
            assert len(batch) >= 2
            assert unlike(batch, features, alone["adapted"]) == []
            assert unlike(batch, features, alone["frozen"]) == list(range(len(batch)))
        check_books(written(folder))
    assert told[0] == told[1]
    hits = [value for _, value in metric(written(state, "job"), "train/feature_hits")]
    assert hits == [1.0, 1.0]
    assert [value for _, value in metric(written(tmp_path / "again", "job"), "train/feature_hits")] == [0.0, 0.0]
    (improved,) = artifacts_of(written(state, "job"), "adapter")
    ended_as, start = published(state, improved, alone["adapted"]).policy, alone["adapted"].policy
    mine, theirs = ended_as.lora.state_dict(), start.lora.state_dict()
    assert all(mine[name].equal(value) for name, value in theirs.items())
    heads = zip(ended_as.head.parameters(), start.head.parameters(), strict=True)
    assert not all(one.equal(other) for one, other in heads), "nothing was learned"


def published(state: Path, artifact: ArtifactPublished, start: Alone) -> Alone:
    """A policy that a job made, from its archive."""
    archive = state / "artifacts" / f"{artifact.artifact_id}.zip"
    return Alone.unpacked(archive, state / "unpacked", start.base)


async def test_after_a_restart_reinforcement_learning_goes_on_with_the_adapter_and_what_it_made_is_evaluated_with_it(
    state, datasets, policies, alone, monkeypatch
) -> None:
    more = PPO | {"training": PPO["training"] | {"iterations": 8}}
    submit = policy_message(policies["adapted"].binding, "rl", environment=SHORT, **more)
    async with running(make_config(state, datasets)) as runtime:
        await runtime.master.submit(submit)
        async with asyncio.timeout(60):
            while (await runtime.master.status("job", 1)).step < 1:
                await asyncio.sleep(0.001)
    seen = Witness.watching(monkeypatch)
    async with running(make_config(state, datasets)) as runtime:
        assert (await ended(runtime, submit, 120)).state is WorkloadState.SUCCEEDED
        (improved,) = artifacts_of(events_of(runtime, "job"), "adapter")
        made = published(state, improved, alone["adapted"])
        binding = PolicyBinding(artifact_id=improved.artifact_id, sha256=improved.sha256, base_model="tiny-qwen3-vl")
        await succeed(runtime, policy_message(binding, job_id="follow", environment=SHORT, **EVALUATION))
    assert 1 <= len(seen.batches) < 8
    for batch, features in seen.batches:
        assert unlike(batch, features, alone["adapted"]) == []
    assert seen.answered("follow") >= 3
    assert seen.differences("job", alone["adapted"]) == seen.differences("follow", made) == []
    check_books(written(state))


async def test_tenants_with_and_without_an_adapter_share_forwards_and_each_gets_its_own_numbers_and_bill(
    tmp_path, state, datasets, policies, alone, monkeypatch
) -> None:
    submits = {
        name: policy_message(
            made.binding, job_id=name, tenant_id=f"lab-{name}", environment=SHORT, **EVALUATION | {"episodes": 4}
        )
        for name, made in policies.items()
    }
    with monkeypatch.context() as patch:
        seen = Witness.watching(patch)
        async with running(make_config(state, datasets, predict_wait_ms=200)) as runtime:
            ask_first_together(runtime, len(submits))
            await succeed(runtime, *submits.values())
            together = {name: report_of(runtime, name) for name in submits}
    assert {"lab-adapted", "lab-other", "lab-frozen"} in seen.groups
    for name in submits:
        assert seen.differences(name, alone[name]) == []
        billed = usage_by_meter(written(state, name))
        assert billed["predict.chunks"] == seen.answered(name)
        assert billed["predict.compute_us"] > 0
    assert {event.tenant_id for event in written(state, "adapted") if event.body.type == "usage"} == {"lab-adapted"}
    check_books(written(state))
    for name, submit in submits.items():
        policies[name].install(tmp_path / name)
        async with running(make_config(tmp_path / name, datasets)) as runtime:
            await succeed(runtime, submit)
            assert report_of(runtime, name) == together[name]


def ask_first_together(runtime: LocalRuntime, tenants: int) -> None:
    """Nobody's first request is made before everybody's: so they are in one group, however slow the machine."""
    asked, everybody, predict = set[str](), asyncio.Barrier(tenants), runtime.inference.predict

    async def wait_first(request: PredictRequest) -> PredictReply:
        if request.tenant_id not in asked:
            asked.add(request.tenant_id)
            await everybody.wait()
        return await predict(request)

    runtime.inference.predict = wait_first  # type: ignore[method-assign]


def report_of(runtime: LocalRuntime, job_id: str) -> list[object]:
    """What happened in every episode, without how long it took."""
    (report,) = artifacts_of(events_of(runtime, job_id), "evaluation")
    file = runtime.artifacts.file(report.artifact_id)
    assert file is not None
    episodes = [episode for task in json.loads(file.read_text())["tasks"] for episode in task["episodes"]]
    return [{name: value for name, value in episode.items() if name != "predict"} for episode in episodes]
