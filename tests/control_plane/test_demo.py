"""The demo's own judgement: what it says on the way, and that no check can hold by accident."""

import dataclasses
from decimal import Decimal
from pathlib import Path

import pytest

from control_plane.demo import recordings
from control_plane.demo.progress import Progress
from control_plane.demo.recordings import RecordingFailed, SimulatorMissing, record_all
from control_plane.demo.scenario import PUSHT
from control_plane.demo.summary import Summary, TenantFigures

GOOD = TenantFigures(
    name="Lab",
    head="mlp",
    samples=160,
    loss_first=1.0,
    loss_last=0.5,
    action_error=0.1,
    baseline_error=0.2,
    group_size_mean=1.9,
    busy_us=600,
    cost=Decimal("0.25"),
    currency="EUR",
    priced_usage=Decimal("0.25"),
    adapter="/adapter",
    reload_max_diff=1e-6,
)


def summary(*tenants: TenantFigures, busy_us: int = 1_000, overhead_us: int = 400) -> Summary:
    return Summary(
        wall_s=1.0, environment="x", base_model="y", busy_us=busy_us, overhead_us=overhead_us, tenants=tenants
    )


def test_a_good_demo_has_no_failure_and_every_key_of_its_summary():
    good = summary(GOOD)
    assert good.failures() == []
    told = good.as_json()
    assert told["unattributed_us"] == 0
    assert told["tenants"][0]["cost"] == told["tenants"][0]["priced_usage"] == "0.25"
    assert set(told) == {
        "wall_s", "environment", "base_model", "busy_us", "overhead_us", "unattributed_us", "tenants",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss_last": 0.51}, "loss fell only"),
        ({"loss_last": float("nan")}, "loss fell only"),
        ({"action_error": 0.2}, "not below"),
        ({"action_error": float("nan")}, "not below"),
        ({"group_size_mean": 1.2}, "group size"),
        ({"cost": Decimal("0.250000000001")}, "differs from priced usage"),
        ({"reload_max_diff": 1.1e-5}, "adapter differs"),
        ({"busy_us": 599}, "differ from the measured time by 1"),
    ],
)
def test_each_figure_that_does_not_hold_is_named(change: dict, words: str):
    (failure,) = summary(dataclasses.replace(GOOD, **change)).failures()
    assert words in failure


def test_progress_tells_rate_and_time_left_and_always_the_end(capsys: pytest.CaptureFixture[str]):
    now_s = iter([0.0, 4.0, 5.0, 10.0])
    progress = Progress("lab", "steps", clock=lambda: next(now_s))
    for done in (10, 50, 55, 100):
        progress.update(done, 100, "running")
    assert capsys.readouterr().err.splitlines() == [
        "  lab: 10/100 steps, running",
        "  lab: 50/100 steps, 10.0/s, about 5 s left, running",
        "  lab: 100/100 steps, 9.0/s, running",
    ]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Puts a script in the place of the recorder."""

    def put(text: str) -> None:
        script = tmp_path / "recorder"
        script.write_text("#!/bin/sh\n" + text)
        script.chmod(0o755)
        monkeypatch.setattr(recordings.sys, "executable", str(script))

    return put


def test_a_machine_without_the_simulator_is_told_apart_from_a_failed_recording(recorder, tmp_path: Path):
    recorder("echo 'record: needs a Vulkan device' >&2; exit 3\n")
    with pytest.raises(SimulatorMissing, match="needs a Vulkan device"):
        record_all(PUSHT, tmp_path / "a")
    for status in (1, 2, 139):
        recorder(f"echo 'the expert is too weak' >&2; exit {status}\n")
        with pytest.raises(RecordingFailed, match="too weak") as failed:
            record_all(PUSHT, tmp_path / "a")
        assert not isinstance(failed.value, SimulatorMissing)


def test_a_recording_that_is_there_is_not_made_again(recorder, tmp_path: Path):
    recorder('while [ "$1" != --out ]; do shift; done; mkdir "$2"\n')
    made = record_all(PUSHT, tmp_path)
    assert all(path.is_dir() for path in made.values())
    recorder("exit 1\n")
    assert record_all(PUSHT, tmp_path) == made
