"""``evaluate`` from the command line: exported adapters in the environments that their data came from."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_runtime.environments.errors import SimulatorMissing
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.environments.session import EnvironmentSession, SessionSpec
from gpu_runtime.workflows.evaluate_cli import main
from tests.support.environments import REACH, children
from tests.support.exported_adapters import Demonstrated

EPISODES = 40
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA device present: nothing to refuse")


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reach")
    demonstrated = Demonstrated.record(REACH, folder / "data", episodes=40)
    return {
        name: demonstrated.export(demonstrated.train(steps), folder / name)
        for name, steps in (("trained", 300), ("untrained", 0))
    }


def evaluate(capsys: pytest.CaptureFixture[str], adapter: Path, *options: str, env: str = REACH) -> dict:
    capsys.readouterr()
    assert main(["--adapter", str(adapter), "--env", env, *options]) == 0
    told = capsys.readouterr()
    assert "episodes" in told.err
    return json.loads(told.out.splitlines()[-1])


def test_a_trained_adapter_beats_an_untrained_one_beyond_chance(
    adapters: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ("--episodes", str(EPISODES), "--parallel", "3")
    trained = evaluate(capsys, adapters["trained"], *asked, "--out", str(tmp_path / "new" / "result.json"))
    untrained = evaluate(capsys, adapters["untrained"], *asked)
    assert trained["success_once"]["low"] > untrained["success_once"]["high"]
    assert trained["mean_return"] > untrained["mean_return"]
    assert trained["success_once"]["episodes"] == trained["planned"] == EPISODES
    assert [record["seed"] for record in trained["episodes"]] == list(range(50_000, 50_000 + EPISODES))
    assert trained["errors"] == []
    assert json.loads((tmp_path / "new" / "result.json").read_text()) == trained
    manifest = json.loads((adapters["trained"] / "manifest.json").read_text())
    assert trained["protocol"]["adapter_id"] == manifest["adapter_id"]
    assert trained["protocol"]["policy_version"] == 300
    assert trained["protocol_hash"] != untrained["protocol_hash"]
    assert children() == []


def test_exact_worlds_are_asked_for_and_change_the_protocols_hash(
    adapters: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bool] = []
    open_session = EnvironmentPool.open

    async def watched(pool: EnvironmentPool, spec: SessionSpec, **options: Any) -> EnvironmentSession:
        opened.append(spec.kind.exact)
        return await open_session(pool, spec, **options)

    monkeypatch.setattr(EnvironmentPool, "open", watched)
    plain = evaluate(capsys, adapters["untrained"], "--episodes", "2")
    assert (set(opened), plain["protocol"]["exact"]) == ({False}, False)
    opened.clear()
    exact = evaluate(capsys, adapters["untrained"], "--episodes", "2", "--exact")
    assert (set(opened), exact["protocol"]["exact"]) == ({True}, True)
    assert exact["protocol_hash"] != plain["protocol_hash"]


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--env", "joynexus/Reach-v7"), 2, "allowed: joynexus/Reach-v0"),
        (("--env", "gym_pusht/PushT-v0"), 2, "state: the policy's is"),
        (("--execute", "5"), 2, "execute: 5, allowed: 1 to 4"),
        (("--base", "other"), 2, "'other' is not in JOYNEXUS_BASE_MODELS"),
        (("--first-seed", str(2**31 - 2)), 2, "--first-seed"),
        (("--adapter", "nowhere"), 2, "manifest.json"),
        pytest.param(("--device", "cuda"), 2, "allowed: cpu", marks=NO_CUDA),
        (("--videos", "/proc/videos"), 1, "/proc/videos"),
    ],
)
def test_a_refusal_is_one_line_with_its_own_status(
    adapters: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    assert main(["--adapter", str(adapters["untrained"]), "--env", REACH, "--episodes", "3", *options]) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err.splitlines()[-1]
    assert children() == []


@pytest.mark.simulator
def test_an_adapter_plays_push_cube_through_the_cameras(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        make_environment("PushCube-v1", size=32).close()
    except SimulatorMissing as error:
        pytest.skip(f"Vulkan device missing: {error}")
    demonstrated = Demonstrated.record("PushCube-v1", tmp_path / "data", episodes=2)
    adapter = demonstrated.export(demonstrated.train(20), tmp_path / "adapter")
    videos = tmp_path / "videos"
    result = evaluate(
        capsys, adapter, "--episodes", "2", "--max-steps", "12", "--videos", str(videos), env="PushCube-v1"
    )
    assert result["errors"] == []
    assert (result["planned"], result["distinct_initial_states"]) == (2, 2)
    assert all(1 <= record["steps"] <= 12 for record in result["episodes"])
    assert {"mani_skill", "sapien"} <= result["protocol"]["packages"].keys()
    assert len(list(videos.iterdir())) == sum(record["video"] is not None for record in result["episodes"]) >= 1
