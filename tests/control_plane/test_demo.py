"""The demo's own judgement: what it asks for, what it says on the way, and that no check can hold by accident."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from control_plane.demo import follow, recordings, reload, specifications
from control_plane.demo.books import ServiceBooks, service_books, utilization
from control_plane.demo.participants import MANISKILL, PURE_PYTHON
from control_plane.demo.progress import Progress
from control_plane.demo.recordings import RecordingFailed, SimulatorMissing, record_all
from control_plane.demo.scenario import FRESH_SEED, Participant
from control_plane.demo.stages import Stage, TenantRun, run_stage
from control_plane.demo.summary import Success, Summary, TenantFigures
from gpu_runtime.protocol.job_specs import JobSpec
from jobs.models import DeviceSpan

GOOD = TenantFigures(
    name="Lab",
    environment="PushCube-v1",
    head="mlp",
    algorithm="sft",
    must_improve=True,
    samples=160,
    loss_first=1.0,
    loss_last=0.5,
    action_error=0.1,
    baseline_error=0.2,
    group_size_mean=1.9,
    before=Success(rate=0.125, low=0.05, high=0.26, episodes=40),
    after=Success(rate=0.6, low=0.45, high=0.74, episodes=40),
    policy_versions=16,
    dropped_stale=0,
    env_steps=18_000,
    predict_p95_ms=12.5,
    busy_us=600,
    cost=Decimal("0.25"),
    currency="EUR",
    priced_usage=Decimal("0.25"),
    adapter="/adapter",
    reload_max_diff=1e-6,
)
BOOKS = {
    name: ServiceBooks(busy_us=1_000, overhead_us=400, metered_us=600)
    for name in ("training", "inference", "environment")
}
ALL = [*MANISKILL, *PURE_PYTHON]


def summary(tenant: TenantFigures = GOOD, books: dict[str, ServiceBooks] = BOOKS) -> Summary:
    return Summary(
        wall_s=1.0,
        environment="x",
        base_model="y",
        services=books,
        utilization={"training": 0.5, "inference": 0.25, "environment": 0.75},
        tenants=(tenant,),
    )


def test_a_good_demo_has_no_failure_and_every_key_of_its_summary():
    good = summary()
    assert good.failures() == []
    told = good.as_json()
    assert told["unattributed_us"] == 0
    assert told["busy_us"] == 3_000
    assert set(told) == {
        *("wall_s", "environment", "base_model", "busy_us", "overhead_us", "unattributed_us", "tenants"),
        *("services", "utilization"),
    }
    (tenant,) = told["tenants"]
    assert tenant["cost"] == tenant["priced_usage"] == "0.25"
    assert set(tenant) >= {
        *("name", "head", "samples", "loss_first", "loss_last", "action_error", "baseline_error", "group_size_mean"),
        *("busy_us", "cost", "currency", "priced_usage", "adapter", "reload_max_diff", "algorithm"),
        *("success_before", "success_after", "episodes", "ci95_before", "ci95_after"),
        *("policy_versions", "dropped_stale", "predict_p95_ms"),
    }
    assert (tenant["success_after"], tenant["ci95_after"]) == (0.6, (0.45, 0.74))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss_last": 0.51}, "loss fell only"),
        ({"loss_last": float("nan")}, "loss fell only"),
        ({"action_error": 0.2}, "not below"),
        ({"action_error": float("nan")}, "not below"),
        ({"cost": Decimal("0.250000000001")}, "differs from priced usage"),
        ({"reload_max_diff": 1.1e-5}, "adapter differs"),
        ({"reload_max_diff": float("nan")}, "adapter differs"),
        ({"policy_versions": 0}, "0 policy versions"),
        ({"after": GOOD.before}, "success went from 12% to 12%"),
    ],
)
def test_each_figure_that_does_not_hold_is_named(change: dict, words: str):
    (failure,) = summary(dataclasses.replace(GOOD, **change)).failures()
    assert words in failure


def test_the_weak_start_of_reinforcement_learning_must_only_have_learned_something():
    weak = dataclasses.replace(GOOD, algorithm="ppo", loss_last=0.99)
    assert summary(weak).failures() == []
    (failure,) = summary(dataclasses.replace(weak, loss_last=1.0)).failures()
    assert "loss fell only" in failure


def test_success_need_not_rise_where_the_recipe_does_not_promise_it():
    assert summary(dataclasses.replace(GOOD, after=GOOD.before, must_improve=False)).failures() == []


@pytest.mark.parametrize("service", ["training", "inference", "environment"])
def test_one_microsecond_that_nobody_pays_for_is_named_with_its_service(service: str):
    wrong = dataclasses.replace(BOOKS[service], metered_us=599)
    (failure,) = summary(books=BOOKS | {service: wrong}).failures()
    assert service in failure
    assert "by 1 microseconds" in failure


def test_a_service_that_measured_nothing_is_named():
    idle = ServiceBooks(busy_us=0, overhead_us=0, metered_us=0)
    assert summary(books=BOOKS | {"environment": idle}).failures() == ["the environment service measured no work"]


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def spans(db: None) -> None:
    """A second of training at 0 s and 5 s, and 6 s of environment processes at 1 s."""
    for service, at_s, busy_us in (
        ("training", 0, 1_000_000), ("training", 5, 1_000_000), ("environment", 1, 6_000_000),
    ):  # fmt: skip
        DeviceSpan.objects.create(
            journal_id="j",
            span_id=f"{service}-{at_s}",
            service=service,
            started_at=BEGIN + timedelta(seconds=at_s),
            busy_us=busy_us,
            overhead_us=100_000,
            group_size=1,
            samples=1,
            tokens=1,
            shares={"a": busy_us - 100_000},
        )


@pytest.mark.usefixtures("spans")
def test_the_books_of_each_service_hold_what_was_measured_against_what_tenants_used():
    used = [{"train.compute_us": 900_000, "env.compute_us": 5_900_000}, {"train.compute_us": 900_000, "env.steps": 7}]
    books = service_books(BEGIN, used)
    assert books["training"] == ServiceBooks(busy_us=2_000_000, overhead_us=200_000, metered_us=1_800_000)
    assert books["environment"].unattributed_us == 0
    assert books["inference"] == ServiceBooks(busy_us=0, overhead_us=0, metered_us=0)
    assert service_books(BEGIN + timedelta(seconds=2), used)["training"].unattributed_us == 1_000_000 - 1_900_000


@pytest.mark.usefixtures("spans")
def test_utilization_is_of_the_phase_and_of_all_environment_processes_together():
    shares = utilization(BEGIN, BEGIN + timedelta(seconds=4), environment_processes=3)
    assert shares == {"training": 0.25, "inference": 0.0, "environment": 0.5}


@pytest.mark.parametrize("who", ALL, ids=lambda who: f"{who.demonstrations.task}-{who.algorithm}")
def test_every_job_of_the_demo_is_one_the_platform_understands(who: Participant):
    spec = TypeAdapter(JobSpec)
    start = spec.validate_python(specifications.start(who, "version"))
    main = spec.validate_python(specifications.main(who, "version", "artifact"))
    evaluation = spec.validate_python(specifications.evaluation(who, "artifact", "before", videos=1))
    assert start.kind == "sft"
    assert evaluation.total_steps == who.episodes
    assert main.kind == ("sft" if who.algorithm == "sft" else "rl")
    assert start.head.horizon >= who.executed_steps


def test_the_mix_is_ppo_and_grpo_on_push_cube_a_third_environment_and_one_camera_imitation():
    told = [(who.demonstrations.task, who.algorithm, who.head_name) for who in MANISKILL]
    assert told[:2] == [("PushCube-v1", "ppo", "mlp"), ("PushCube-v1", "grpo", "mlp")]
    assert told[2][0] not in {"PushCube-v1"}
    assert told[2][2] == "gr00t"
    assert [who.algorithm for who in MANISKILL].count("sft") == 1
    assert [who.selection.get("cameras") for who in MANISKILL] == [[], [], [], None]
    assert len({who.email for who in MANISKILL}) == 4
    assert [who.email for who in MANISKILL] == [who.email for who in PURE_PYTHON]


class FakeJobs:
    """Answers of the API, one state after the other."""

    def __init__(self, *states: str, last: dict[str, float]) -> None:
        self._states, self._last = list(states), last

    def submit(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {"id": "7", "kind": spec["kind"], "name": spec["name"], "state": "queued"}

    def get(self, job_id: str) -> dict[str, Any]:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        told = {"reason": "environment_lost", "message": "three in a row"} if state == "failed" else {}
        return {
            "id": job_id,
            "name": "x",
            "state": state,
            "step": 3,
            "total_steps": 16,
            "reason": "",
            "message": "",
        } | told

    def metrics(self, job_id: str, *, series: tuple[str, ...], max_points: int) -> dict[str, Any]:
        return {"series": [{"name": name, "last": [self._last[name]]} for name in series if name in self._last]}


def run_of(jobs: FakeJobs) -> TenantRun:
    return TenantRun(who=MANISKILL[0], client=SimpleNamespace(jobs=jobs), recording=Path(), version_id="v")  # type: ignore[arg-type]


def test_a_stage_says_how_a_learner_does_and_keeps_the_job_as_it_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(follow, "POLL_S", 0.0)
    run = run_of(FakeJobs("running", "succeeded", last={"rollout/success_once": 0.25, "train/approx_kl": 0.0123}))
    run_stage([run], Stage.START, "http://console")
    assert run.jobs[Stage.START]["state"] == "succeeded"
    said = capsys.readouterr().err
    assert "http://console/jobs/7/" in said
    assert "3/16" in said


def test_a_learners_line_tells_its_newest_curves():
    jobs = FakeJobs("running", last={"rollout/success_once": 0.25, "train/approx_kl": 0.0123})
    job: Any = {"id": "7", "kind": "rl"}
    item = follow.Followed(label="lab", client=SimpleNamespace(jobs=jobs), job=job)  # type: ignore[arg-type]
    assert follow._note(item) == ", success 25% while exploring, KL 0.012"


def test_a_job_that_fails_ends_the_demo_with_its_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(follow, "POLL_S", 0.0)
    with pytest.raises(RuntimeError, match="failed: environment_lost three in a row"):
        run_stage([run_of(FakeJobs("failed", last={}))], Stage.START, "http://console")


@pytest.mark.parametrize(("episode", "needs"), [(None, False), (5, True)])
def test_a_learner_is_compared_on_what_it_brings_and_an_imitator_on_its_recording(
    episode: int | None, needs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "manifest.json").write_text(json.dumps({"probe": {"episode": episode}}))
    asked: list[str] = []

    def act(argv: list[str], **options: object) -> SimpleNamespace:
        asked.extend(argv)
        return SimpleNamespace(stdout='noise\n{"max_difference": 2e-6}\n', stderr="", returncode=0)

    monkeypatch.setattr(reload.subprocess, "run", act)
    assert reload.reload_difference(tmp_path, tmp_path / "recording") == 2e-6
    assert ("--dataset" in asked) is ("--episode" in asked) is needs


def test_nobody_demonstrates_on_the_seeds_that_are_evaluated():
    for who in ALL:
        tries_max = 10 * who.demonstrations.episodes
        assert who.demonstrations.seed + tries_max < FRESH_SEED


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


WANTED = [who.demonstrations for who in PURE_PYTHON]


def test_a_machine_without_the_simulator_is_told_apart_from_a_failed_recording(recorder, tmp_path: Path):
    recorder("echo 'record: needs a Vulkan device' >&2; exit 3\n")
    with pytest.raises(SimulatorMissing, match="needs a Vulkan device"):
        record_all(WANTED, tmp_path / "a")
    for status in (1, 2, 139):
        recorder(f"echo 'the expert is too weak' >&2; exit {status}\n")
        with pytest.raises(RecordingFailed, match="too weak") as failed:
            record_all(WANTED, tmp_path / "a")
        assert not isinstance(failed.value, SimulatorMissing)


def test_equal_recordings_are_made_once_and_one_that_is_there_is_not_made_again(recorder, tmp_path: Path):
    recorder('while [ "$1" != --out ]; do shift; done; mkdir "$2"\n')  # fails where it is made twice
    made = record_all(WANTED, tmp_path / "recordings")
    assert len(made) == 2
    assert all(path.is_dir() for path in made.values())
    recorder("exit 1\n")
    assert record_all(WANTED, tmp_path / "recordings") == made
