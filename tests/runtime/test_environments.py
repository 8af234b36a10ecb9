"""Environments without a graphics driver: registry, checks, PushT, its expert, and the record command on it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from gpu_runtime.data.imports import validate_path
from gpu_runtime.data.lerobot import LeRobotDataset
from gpu_runtime.environments import demonstrations as demonstrations_module
from gpu_runtime.environments.base import Environment, StateKind
from gpu_runtime.environments.demonstrations import ExpertTooWeak, Outcome, demonstrate, demonstrations
from gpu_runtime.environments.errors import NoExpert, UnknownCamera, UnknownEnvironment, WrongAction
from gpu_runtime.environments.experts import expert_for
from gpu_runtime.environments.maniskill_tasks import task_of
from gpu_runtime.environments.record import main
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.protocol.schema import ActionRepresentation

PUSHT = "gym_pusht/PushT-v0"
TOP, AGENT = "observation.images.top", "observation.images.agent"


@pytest.fixture(scope="module")
def pusht() -> Environment:
    return make_environment(PUSHT, cameras=["top", "agent"], size=32)


def test_an_unknown_simulator_family_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownEnvironment, match=r"'atari/Pong-v5'.*gym_pusht/"):
        make_environment("atari/Pong-v5")
    with pytest.raises(UnknownEnvironment, match=r"PushT-v9.*allowed: gym_pusht/PushT-v0"):
        make_environment("gym_pusht/PushT-v9")


def test_an_unknown_camera_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownCamera, match="no camera 'wrist'; allowed: top, agent"):
        make_environment(PUSHT, cameras=["wrist"])
    with pytest.raises(UnknownCamera, match="twice"):
        make_environment(PUSHT, cameras=["top", "top"])


def test_an_environment_without_an_expert_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(NoExpert, match=r"StackCube-v1.*PushCube-v1"):
        expert_for("StackCube-v1")


def test_importing_the_registry_and_the_record_command_loads_no_simulator() -> None:
    code = (
        "import sys, gpu_runtime.environments.record, gpu_runtime.environments.registry;"
        "print([name for name in ('torch', 'mani_skill', 'sapien', 'gymnasium', 'gym_pusht') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_vulkan_device_maniskill_is_refused_with_the_remedy(tmp_path: Path) -> None:
    options = f"--env PushCube-v1 --episodes 1 --out {tmp_path / 'out'}"
    done = subprocess.run(
        [sys.executable, "-m", "gpu_runtime", "record", *options.split()],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"},
    )
    assert done.returncode == 3
    assert "needs a Vulkan device: deploy/system-packages.sh" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_undeclared_maniskill_task_is_described_by_its_name() -> None:
    assert task_of("PegInsertionSide-v1").instruction == "Peg insertion side."
    assert task_of("PegInsertionSide-v1").control_mode is None


def test_pusht_declares_what_it_shows_and_takes(pusht: Environment) -> None:
    schema = pusht.schema()
    assert [(camera.key, camera.height, camera.width) for camera in schema.cameras] == [(TOP, 32, 32), (AGENT, 32, 32)]
    assert schema.state is not None
    assert (schema.state.names, schema.action.names) == (("agent_x", "agent_y"), ("target_x", "target_y"))
    assert schema.representation is ActionRepresentation.ABSOLUTE_POINT
    assert (schema.control_hz, schema.gripper) == (10.0, None)
    assert pusht.reset(3).state_S.dtype == np.float32


def test_the_same_seed_starts_the_same_try_and_another_seed_another(pusht: Environment) -> None:
    first, again, other = pusht.reset(5).state_S, pusht.reset(5).state_S, pusht.reset(6).state_S
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("action", "words"),
    [(np.zeros(3), r"shape \(3,\).*target_x"), (np.array([1.0, np.nan]), "finite"), (np.zeros((1, 2)), r"\(1, 2\)")],
)
def test_a_wrong_action_is_refused(pusht: Environment, action: np.ndarray, words: str) -> None:
    pusht.reset(0)
    with pytest.raises(WrongAction, match=words):
        pusht.step(action)


def test_running_out_of_time_is_truncation_not_termination(pusht: Environment) -> None:
    start = pusht.reset(0).state_S
    steps = [pusht.step(start) for _ in range(300)]
    assert not any(step.truncated for step in steps[:-1])
    assert steps[-1].truncated
    assert not steps[-1].terminated
    assert not steps[-1].success


def test_a_restored_snapshot_shows_the_same_picture_and_takes_the_same_next_step(pusht: Environment) -> None:
    expert = expert_for(PUSHT)
    pusht.reset(2)
    kept = []
    for _ in range(40):
        action = expert(pusht.privileged())
        kept.append((pusht.snapshot(), pusht.render(), action))
        pusht.step(action)
        kept[-1] += (pusht.snapshot(),)
    pusht.reset(2)
    for snapshot, images, action, after in reversed(kept):
        pusht.restore(snapshot)
        assert np.array_equal(pusht.snapshot(), snapshot)
        for key, image in pusht.render().items():
            assert (
                np.abs(image.astype(int) - images[key].astype(int)).mean() < 0.5
            )  # an edge may round to the next pixel
        pusht.step(action)
        # Where things are, in units of a 512-unit table; the solver starts cold, so contacts differ by a little.
        np.testing.assert_allclose(pusht.snapshot()[[0, 1, 4, 5, 6]], after[[0, 1, 4, 5, 6]], atol=0.5)


def test_rendering_one_camera_gives_only_that_one(pusht: Environment) -> None:
    pusht.reset(0)
    assert list(pusht.render([AGENT])) == [AGENT]
    assert pusht.render([AGENT])[AGENT].shape == (32, 32, 3)
    with pytest.raises(UnknownCamera):
        pusht.render(["observation.images.wrist"])


def test_the_pusher_solves_unseen_seeds_and_depends_on_the_state_alone(pusht: Environment) -> None:
    expert = expert_for(PUSHT)
    outcomes = [demonstrate(pusht, expert, seed) for seed in range(7000, 7008)]
    assert [outcome for outcome, _ in outcomes] == [Outcome.SOLVED] * 8
    kept = outcomes[0][1]
    assert kept is not None
    pusht.reset(kept.seed)
    for index in (len(kept.actions_NA) // 2, 3, len(kept.actions_NA) - 1):  # asked out of order, it answers the same
        pusht.restore(kept.snapshots_NK[index])
        np.testing.assert_allclose(expert(pusht.privileged()), kept.actions_NA[index], atol=1e-3)


def test_an_expert_that_does_nothing_is_given_up(pusht: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstrations_module, "TRIES_PER_EPISODE_MAX", 2)
    outcomes: dict[Outcome, int] = {}
    idle = demonstrations(pusht, lambda scene: scene["agent"], episodes=1, seed=0, outcomes=outcomes)
    with pytest.raises(ExpertTooWeak, match="solved 0 of 2 tries; 1 were asked for"):
        list(idle)
    assert outcomes == {Outcome.FAILED: 2}


class SolvedAtReset:
    """PushT whose block lies on the outline after every reset of an even seed."""

    def __init__(self, inner: Environment) -> None:
        self._inner, self._even = inner, False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def reset(self, seed: int) -> object:
        self._even = seed % 2 == 0
        return self._inner.reset(seed)

    def succeeded(self) -> bool:
        return self._even


def test_tries_solved_at_reset_are_counted_and_left_out(pusht: Environment) -> None:
    outcomes: dict[Outcome, int] = {}
    lucky = SolvedAtReset(pusht)
    kept = list(demonstrations(lucky, expert_for(PUSHT), episodes=2, seed=0, outcomes=outcomes))
    assert [demonstration.seed for demonstration in kept] == [1, 3]
    assert outcomes == {Outcome.SOLVED_AT_RESET: 2, Outcome.SOLVED: 2}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, list[dict]]:
    """Two PushT episodes from the command line: the dataset, the final counts, the progress lines."""
    out = tmp_path_factory.mktemp("recorded") / "pusht"
    options = f"--env {PUSHT} --episodes 2 --out {out} --cameras top,agent --size 32 --seed 40 --progress-json"
    done = subprocess.run(
        [sys.executable, "-m", "gpu_runtime", "record", *options.split()],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    progress = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return out, json.loads(done.stdout.splitlines()[-1]), progress


def test_the_record_command_reports_counts_and_progress(recorded: tuple[Path, dict, list[dict]]) -> None:
    _, counts, progress = recorded
    assert set(counts) == {"episodes", "frames", "tried", "failed", "solved_at_reset", "wall_s"}
    assert counts["episodes"] == 2
    assert counts["tried"] == 2 + counts["failed"] + counts["solved_at_reset"]
    assert {line["phase"] for line in progress} == {"simulate", "render"}
    assert all(set(line) == {"phase", "done", "total", "unit", "rate_per_s", "eta_s"} for line in progress)
    last = [line for line in progress if line["phase"] == "render"][-1]
    assert last["done"] == last["total"] == counts["frames"]
    assert last["eta_s"] == 0


def test_a_recording_is_a_valid_dataset_with_the_environments_schema(
    recorded: tuple[Path, dict, list[dict]], pusht: Environment
) -> None:
    out, counts, _ = recorded
    dataset = LeRobotDataset.open(out)
    assert dataset.schema.signature == pusht.schema().signature
    assert len(dataset.episodes) == 2
    assert dataset.actions_NA().shape == (counts["frames"], 2)
    assert dataset.episodes[0].task == pusht.instruction
    kept = json.loads((out / "meta/recording.json").read_text())
    assert kept["environment"] == PUSHT
    assert len(kept["seeds"]) == 2


def test_replaying_recorded_actions_solves_the_task_at_the_last_one(
    recorded: tuple[Path, dict, list[dict]], pusht: Environment
) -> None:
    out, _, _ = recorded
    table = pq.read_table(out / "data/chunk-000/file-000.parquet")
    episodes = np.array(table.column("episode_index").to_pylist())
    actions = np.array(table.column("action").to_pylist(), np.float32)
    states = np.array(table.column("observation.state").to_pylist(), np.float32)
    for index, seed in enumerate(json.loads((out / "meta/recording.json").read_text())["seeds"]):
        assert np.array_equal(pusht.reset(seed).state_S, states[episodes == index][0])
        results = [pusht.step(action) for action in actions[episodes == index]]
        assert [result.success for result in results] == [False] * (len(results) - 1) + [True]


def test_recorded_pictures_are_those_of_the_recorded_states(
    recorded: tuple[Path, dict, list[dict]], pusht: Environment
) -> None:
    out, _, _ = recorded
    dataset = LeRobotDataset.open(out)
    pusht.reset(json.loads((out / "meta/recording.json").read_text())["seeds"][1])
    length = dataset.episodes[1].length
    seen = {key: np.asarray(dataset.frames(1, [0, length - 1], key)) for key in (TOP, AGENT)}
    actions = dataset.actions_NA()[-length:]
    live = [pusht.render()]
    for action in actions[:-1]:
        pusht.step(action)
    live.append(pusht.render())
    for index in (0, 1):
        for key, frames in seen.items():
            error = np.abs(frames[index].astype(int) - live[index][key].astype(int))
            assert error.mean() < 3, key  # colour at half resolution


def test_a_state_only_recording_has_no_videos_and_is_a_valid_dataset(tmp_path: Path, pusht: Environment) -> None:
    asked = f"--env {PUSHT} --episodes 2 --state privileged --cameras none --seed 40 --out {tmp_path / 'blind'}"
    assert main(asked.split()) == 0
    assert not (tmp_path / "blind/videos").exists()
    report = validate_path(tmp_path / "blind", extract_to=None, declared=None, watcher=lambda file: None)
    assert report.ok
    assert report.summary is not None
    assert (report.summary.schema_.cameras, report.summary.episodes) == ((), 2)
    dataset = LeRobotDataset.open(tmp_path / "blind")
    states, actions = dataset.states_NS(), dataset.actions_NA()
    assert states is not None
    privileged = make_environment(PUSHT, cameras=(), state=StateKind.PRIVILEGED)
    for index, seed in enumerate(json.loads((tmp_path / "blind/meta/recording.json").read_text())["seeds"]):
        rows = dataset.rows(index)
        np.testing.assert_allclose(privileged.reset(seed).state_S, states[rows][0], atol=1e-4)
        results = [privileged.step(action) for action in actions[rows]]
        assert [result.success for result in results] == [False] * (len(results) - 1) + [True]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--env", "PushT-v0"], "nobody wrote a scripted expert"),
        (["--env", PUSHT, "--cameras", "wrist"], "no camera 'wrist'"),
        (["--env", PUSHT, "--size", "33"], "even height"),
    ],
)
def test_the_record_command_refuses_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main([*arguments, "--episodes", "1", "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_record_command_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("keep me")
    assert main(["--env", PUSHT, "--episodes", "1", "--out", str(tmp_path / "mine")]) == 2
    assert "never overwrites" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "keep me"


@pytest.mark.parametrize("arguments", [["--episodes", "0"], ["--episodes", "1", "--size", "8"]])
def test_numbers_out_of_range_are_refused_by_the_parser(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--env", PUSHT, "--out", str(tmp_path / "out"), *arguments])
