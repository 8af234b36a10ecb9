"""Datasets that call their cameras otherwise than the simulator does: refused, then played by one field of the job."""

import asyncio
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.data.recorder import Recorder
from gpu_runtime.environments.errors import SchemaMismatch
from gpu_runtime.models.policy import Policy
from gpu_runtime.protocol.camera_names import CamerasRefused, cameras_of
from gpu_runtime.protocol.messages import PolicyBinding, WorkloadState
from gpu_runtime.workflows.evaluate_cli import main
from gpu_runtime.workflows.evaluation_plan import plan
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from tests.support.demonstrations import bind
from tests.support.environments import REACH
from tests.support.rl_jobs import reach_policy
from tests.support.runtime import ended, events_of, make_config, running, shared_bases, submit_message
from tests.support.runtime_policies import Shelved, artifacts_of, learned, policy_message, reach_message, record_reach

KEY = "observation.images.image"
SHOWN = {KEY: "top"}


def renamed(source: Path, target: Path) -> Path:
    """The same recording with its camera under another key."""
    dataset = LeRobotDataset.open(source)
    (camera,) = dataset.schema.cameras
    schema = dataset.schema.model_copy(update={"cameras": (camera.model_copy(update={"key": KEY}),)})
    states_NS = dataset.states_NS()
    assert states_NS is not None
    with Recorder(target, schema, round(schema.control_hz)) as recorder:
        for number, episode in enumerate(dataset.episodes):
            rows = dataset.rows(number)
            recorder.start_episode(episode.task)
            pictures = dataset.frames(number, range(dataset.lengths[number]), camera.key)
            for image, state_S, action_A in zip(pictures, states_NS[rows], dataset.actions_NA()[rows], strict=True):
                recorder.add({KEY: image}, state_S, action_A)
            recorder.end_episode()
    return target


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    """A policy trained on such a recording."""
    folder = tmp_path_factory.mktemp("foreign")
    datasets = folder / "datasets"
    datasets.mkdir()
    record_reach(datasets, episodes=4)
    message = reach_message(bind(datasets, renamed(datasets / "reach", datasets / "renamed")), cameras=True, steps=4)

    async def train() -> PolicyBinding:
        async with running(make_config(folder / "state", datasets)) as runtime:
            return await learned(runtime, message)

    return Shelved(binding=asyncio.run(train()), artifacts=folder / "state" / "artifacts")


RL = {
    "algorithm": {"type": "ppo", "value": {"hidden": [16]}},
    "exploration": {"type": "gaussian"},
    "executed_steps": 2,
    "collection": {"seats": 2, "episodes": 4},
    "training": {"iterations": 1, "epochs": 1},
}
JOBS: dict[str, dict[str, Any]] = {
    "evaluation": {"episodes": 2, "videos_per_outcome": 0},
    "rl": RL,
    "rollout": {"episodes": 2, "dataset_name": "more"},
}


@pytest.mark.parametrize("kind", JOBS)
async def test_without_the_names_a_job_is_refused_naming_both_sides_and_with_them_it_succeeds(
    tmp_path: Path, foreign: Shelved, kind: str
) -> None:
    (datasets := tmp_path / "datasets").mkdir()
    state = tmp_path / "state"
    foreign.install(state)
    async with running(make_config(state, datasets)) as runtime:
        for cameras, named in ((None, "image"), ({KEY: "side"}, "side")):
            submit = policy_message(
                foreign.binding, kind, job_id=named, environment={"cameras": cameras, "max_steps": 4}, **JOBS[kind]
            )
            await runtime.master.submit(submit)
            status = await ended(runtime, submit)
            assert (status.state, status.step) == (WorkloadState.FAILED, 0)
            told = str(status)
            for words in (f"no camera '{named}'", "allowed: top", f"{KEY} as '{named}'", "the field cameras"):
                assert words in told
            assert runtime.pool.status().seats == {}
        submit = policy_message(foreign.binding, kind, environment={"cameras": SHOWN, "max_steps": 4}, **JOBS[kind])
        await runtime.master.submit(submit)
        status = await ended(runtime, submit)
        assert status.state is WorkloadState.SUCCEEDED, status
        if kind == "rollout":  # whoever trains on goes on with the keys that the policy knows
            (made,) = artifacts_of(events_of(runtime, "job"), "dataset")
            with zipfile.ZipFile(runtime.artifacts.archive(made.artifact_id) or "") as archive:
                archive.extractall(datasets / "made")
            (info,) = (datasets / "made").rglob("info.json")
            folder = info.parent.parent
            assert [camera.key for camera in LeRobotDataset.open(folder).schema.cameras] == [KEY]
            again = submit_message(bind(datasets, folder), job_id="again", steps=2)
            await runtime.master.submit(again)
            assert (await ended(runtime, again)).state is WorkloadState.SUCCEEDED


def test_the_command_line_takes_the_names_too(foreign: Shelved, tmp_path: Path, capsys: Any) -> None:
    (archive,) = foreign.artifacts.rglob("*.zip")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path)
    (manifest,) = tmp_path.rglob("manifest.json")
    asked = ["--adapter", str(manifest.parent), "--env", REACH, "--episodes", "1", "--max-steps", "2"]
    assert main(asked) == 2
    assert f"{KEY} as 'image'" in capsys.readouterr().err
    assert main([*asked, "--camera", f"{KEY}=top", "--camera", f"{KEY}=top"]) == 2
    assert "each of the policy's cameras once" in capsys.readouterr().err
    assert main([*asked, "--camera", f"{KEY}=top"]) == 0
    assert '"cameras":["top"]' in capsys.readouterr().out


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("policy")
    (backbone,) = shared_bases(make_config(folder, folder)).values()
    return reach_policy(backbone, cameras=True)


def planned(policy: Policy, cameras: dict[str, str] | None) -> EvaluationProtocol:
    return plan(policy, environment=REACH, seeds=(1,), adapter_id="a" * 64, policy_version=1, cameras=cameras)


def test_the_protocols_hash_follows_the_cameras_that_are_shown(policy: Policy) -> None:
    own = "observation.images.top"
    assert planned(policy, {own: "side"}).cameras == ("side",)
    assert planned(policy, {own: "side"}).hash != planned(policy, None).hash
    assert planned(policy, {own: "top"}).hash == planned(policy, None).hash
    with pytest.raises(SchemaMismatch, match=f"the policy sees no '{KEY}'; allowed: {own}"):
        planned(policy, SHOWN)


@pytest.mark.parametrize(
    ("views", "given", "code", "words"),
    [
        (["image"], None, "camera_not_simulated", "'image'.*observation.images.NAME"),
        ([KEY], {"wrist": "hand"}, "unknown_camera", f"no 'wrist'; allowed: {KEY}"),
        ([], {KEY: "hand"}, "unknown_camera", "allowed: none, it sees no picture"),
        ([KEY, "wrist"], {KEY: "hand", "wrist": "hand"}, "camera_repeated", f"'hand'.*'{KEY}' and 'wrist'"),
        ([KEY, "wrist"], {"wrist": "image"}, "camera_repeated", "'image'"),
    ],
)
def test_views_without_a_camera_of_their_own_are_refused(
    views: list[str], given: dict[str, str] | None, code: str, words: str
) -> None:
    with pytest.raises(CamerasRefused, match=words) as refused:
        cameras_of(views, given)
    assert refused.value.code == code


def test_cameras_are_in_the_order_of_the_views_and_called_as_their_keys_say_unless_told_otherwise() -> None:
    assert cameras_of(["wrist", KEY], {"wrist": "hand"}) == ("hand", "image")
