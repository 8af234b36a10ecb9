"""Checkpoints: there completely or not at all, and resuming equals never having stopped."""

import json
from collections import deque
from pathlib import Path

import pytest
import torch

from gpu_runtime.models import folders
from gpu_runtime.models.checkpoint import load_slot, save_slot
from gpu_runtime.models.errors import CheckpointError
from gpu_runtime.models.slots import Slot
from tests.support.policies import SMALL_HEADS, Problem, make_spec, tap_width

EVERY_HEAD = sorted(SMALL_HEADS)
STEPS = 12


def train(slot: Slot, batches: list, first: int = 0) -> list[float]:
    return [slot.train_step(*batch, f"p{first + i}")["loss"] for i, batch in enumerate(batches)]


@pytest.mark.parametrize("name", EVERY_HEAD)
@pytest.mark.parametrize("stop", [0, 5])
def test_resuming_equals_never_having_stopped(name: str, stop: int, tmp_path: Path):
    problem = Problem()
    batches = [problem.batch(8) for _ in range(STEPS)]
    steady = problem.slot(name, steps=STEPS)
    interrupted = load_back(steady, tmp_path / "start")
    losses = train(steady, batches)

    resumed_losses = train(interrupted, batches[:stop])
    resumed = load_back(interrupted, tmp_path / "stop")
    del interrupted
    resumed_losses += train(resumed, batches[stop:], first=stop)

    assert resumed_losses == losses
    assert resumed.step == STEPS
    assert list(resumed.consumed) == list(steady.consumed) == [f"p{i}" for i in range(STEPS)]
    assert resumed.action_guard.to_json() == steady.action_guard.to_json()
    weights, expected = resumed.policy.head.state_dict(), steady.policy.head.state_dict()
    assert all(torch.equal(weights[key], expected[key]) for key in expected)


def load_back(slot: Slot, folder: Path) -> Slot:
    save_slot(slot, folder)
    torch.manual_seed(12345)  # whatever else went on in the new process
    return load_slot(folder, tap_width=tap_width, spec=slot.spec)


def test_the_equality_would_notice_forgotten_moments(tmp_path: Path):
    problem = Problem()
    batches = [problem.batch(8) for _ in range(6)]
    slot = problem.slot("mlp")
    train(slot, batches[:3])
    resumed = load_back(slot, tmp_path / "c")
    resumed.weights.optimizer.state.clear()
    assert train(resumed, batches[3:], first=3) != train(slot, batches[3:], first=3)


def test_the_equality_would_notice_a_forgotten_generator(tmp_path: Path):
    problem = Problem()
    batches = [problem.batch(8) for _ in range(6)]
    slot = problem.slot("gr00t")
    train(slot, batches[:3])
    resumed = load_back(slot, tmp_path / "c")
    resumed.generator.manual_seed(0)
    assert train(resumed, batches[3:], first=3) != train(slot, batches[3:], first=3)


def test_an_unfitted_slot_survives_too(tmp_path: Path):
    problem = Problem()
    slot = problem.slot("mlp", fitted=False)
    assert load_back(slot, tmp_path / "c").needs_fit


def test_a_checkpoint_holds_no_pickle(tmp_path: Path):
    slot = Problem().slot("mlp")
    save_slot(slot, tmp_path / "c")
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names == {"head.safetensors", "optimizer.safetensors", "random.safetensors", "slot.json"}
    assert not any(path.read_bytes()[:2] in (b"PK", b"\x80\x02") for path in (tmp_path / "c").iterdir())


def test_a_write_that_fails_leaves_the_old_checkpoint_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    problem = Problem()
    slot = problem.slot("mlp")
    save_slot(slot, tmp_path / "c")
    slot.train_step(*problem.batch(8), "p0")

    def disk_full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "_sync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save_slot(slot, tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert load_slot(tmp_path / "c", tap_width=tap_width).step == 0


def test_saving_again_replaces_the_folder(tmp_path: Path):
    problem = Problem()
    slot = problem.slot("mlp")
    save_slot(slot, tmp_path / "c")
    slot.train_step(*problem.batch(8), "p0")
    save_slot(slot, tmp_path / "c")
    assert load_slot(tmp_path / "c", tap_width=tap_width).consumed == deque(["p0"])
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("file", ["head.safetensors", "optimizer.safetensors", "random.safetensors"])
def test_an_altered_file_is_refused_by_name(file: str, tmp_path: Path):
    save_slot(Problem().slot("mlp"), tmp_path / "c")
    content = bytearray((tmp_path / "c" / file).read_bytes())
    content[-1] ^= 1
    (tmp_path / "c" / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=file):
        load_slot(tmp_path / "c", tap_width=tap_width)


@pytest.mark.parametrize("file", ["slot.json", "optimizer.safetensors"])
def test_a_missing_file_is_refused(file: str, tmp_path: Path):
    save_slot(Problem().slot("mlp"), tmp_path / "c")
    (tmp_path / "c" / file).unlink()
    with pytest.raises(CheckpointError, match=file):
        load_slot(tmp_path / "c", tap_width=tap_width)


def test_a_checkpoint_of_another_specification_is_refused(tmp_path: Path):
    save_slot(Problem().slot("mlp"), tmp_path / "c")
    with pytest.raises(CheckpointError, match="another specification"):
        load_slot(tmp_path / "c", tap_width=tap_width, spec=make_spec("mlp", width=64))


def test_an_unknown_format_is_refused(tmp_path: Path):
    save_slot(Problem().slot("mlp"), tmp_path / "c")
    path = tmp_path / "c" / "slot.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        load_slot(tmp_path / "c", tap_width=tap_width)


def test_a_description_that_parses_but_makes_no_sense_is_a_broken_checkpoint(tmp_path: Path):
    problem = Problem()
    save_slot(problem.slot("mlp", steps=STEPS), tmp_path / "c")
    document = json.loads((tmp_path / "c" / "slot.json").read_text())
    document["spec"]["training"]["steps"] = -1
    (tmp_path / "c" / "slot.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="steps"):
        load_slot(tmp_path / "c", tap_width=tap_width)
