"""What an evaluation job keeps and tells: ledger lines, running curves, reports over several tasks and suites."""

from pathlib import Path

import pytest

from gpu_runtime.environments.base import StateKind
from gpu_runtime.services.latencies import Latencies
from gpu_runtime.workflows.evaluation_ledger import EpisodeLedger, LedgerLine
from gpu_runtime.workflows.evaluation_progress import EvaluationProgress
from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from gpu_runtime.workflows.evaluation_report import EvaluationReport, suite_of
from gpu_runtime.workflows.evaluation_result import Cause, EpisodeRecord, EvaluationResult
from gpu_runtime.workflows.evaluation_witness import Played


def played(seed: int, cause: Cause = Cause.SUCCESS, *, steps: int = 4) -> Played:
    won = cause is Cause.SUCCESS
    record = EpisodeRecord(
        seed=seed,
        initial_state=f"start {seed}",
        cause=cause,
        success_once=won,
        success_at_end=won,
        steps=steps,
        return_=float(steps),
        predict=None,
        error="gone" if cause is Cause.ERROR else None,
    )
    outcome = "success" if won else "fail"
    return Played(record=record, outcome=outcome, instruction="reach", predict_s=(0.01, 0.03), group_sizes=(1, 2))


def line(seed: int) -> LedgerLine:
    return LedgerLine(environment="joynexus/Reach-v0", protocol_hash="p" * 64, played=played(seed))


def ledger_of(path: Path, count: int) -> EpisodeLedger:
    ledger = EpisodeLedger(path)
    assert not ledger.begin()
    for seed in range(count):
        ledger.append(line(seed))
    return ledger


def test_lines_come_back_in_order_and_a_second_begin_says_so(tmp_path: Path) -> None:
    path = tmp_path / "job" / "episodes.jsonl"
    ledger = ledger_of(path, 3)
    assert ledger.read() == [line(0), line(1), line(2)]
    assert EpisodeLedger(path).begin()


@pytest.mark.parametrize("torn", [1, 20, 200])
def test_a_torn_last_line_is_cut_off_and_the_next_one_stands_by_itself(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "episodes.jsonl"
    ledger_of(path, 3)
    path.write_bytes(path.read_bytes()[:-torn])
    again = EpisodeLedger(path)
    assert again.read() == [line(0), line(1)]
    again.append(line(7))
    assert again.read() == [line(0), line(1), line(7)]


def test_a_line_that_is_none_is_played_again(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    ledger_of(path, 1)
    with path.open("ab") as file:
        file.write(b'{"environment": "of another version"}\n')
    EpisodeLedger(path).append(line(5))
    assert EpisodeLedger(path).read() == [line(0), line(5)]


def test_curves_count_errors_as_failures_and_leave_out_what_was_solved_at_reset() -> None:
    progress = EvaluationProgress()
    told = [
        progress.add(played(0)),
        progress.add(played(1, Cause.SOLVED_AT_RESET, steps=0)),
        progress.add(played(2, Cause.ERROR)),
        progress.add(played(3, Cause.MAX_STEPS, steps=20)),
    ]
    assert [body.step for body in told] == [1, 2, 3, 4]
    assert [body.values["eval/success_rate"] for body in told] == [1, 1, 0.5, pytest.approx(1 / 3)]
    assert [body.values["eval/return"] for body in told] == [4, 4, 4, 12]
    assert told[-1].values["eval/episode_steps"] == 12
    assert told[-1].values["service/predict_group_size"] == 1.5
    assert 10 < told[-1].values["service/predict_p95_ms"] <= 30


def result(environment: str, causes: list[Cause]) -> EvaluationResult:
    protocol = EvaluationProtocol(
        environment=environment,
        state=StateKind.PROPRIOCEPTION,
        control_mode=None,
        cameras=(),
        render_size=32,
        image_size=32,
        seeds=tuple(range(len(causes))),
        max_steps=None,
        executed_steps=2,
        goes_on_after_success=False,
        adapter_id="a" * 64,
        policy_version=1,
        packages={},
    )
    records = [played(seed, cause).record for seed, cause in enumerate(causes)]
    return EvaluationResult.of(protocol, records, predict_s=[], group_sizes=[], wall_s=1.0)


def test_a_report_adds_up_tasks_of_a_suite_and_all_of_them() -> None:
    won, lost, error, lucky = Cause.SUCCESS, Cause.MAX_STEPS, Cause.ERROR, Cause.SOLVED_AT_RESET
    report = EvaluationReport.of(
        [
            result("libero_spatial/0", [won, lost]),
            result("PushCube-v1", [won, lucky]),
            result("libero_spatial/1", [won, error]),
        ]
    )
    suites = {suite.suite: suite for suite in report.suites}
    assert suites["libero_spatial"].tasks == ("libero_spatial/0", "libero_spatial/1")
    assert (suites["libero_spatial"].success_once.successes, suites["libero_spatial"].counted) == (2, 4)
    assert suites["libero_spatial"].errors == 1
    assert (suites["maniskill"].counted, suites["maniskill"].planned) == (1, 2)
    assert (report.overall.success_once.successes, report.overall.counted, report.overall.planned) == (3, 5, 6)
    assert len(set(report.protocol_hashes)) == 3
    assert all("episodes" not in task for task in report.summary()["tasks"])
    assert len(report.tasks[0].episodes) == 2


def test_a_suite_is_the_namespace_of_an_id() -> None:
    assert [suite_of(name) for name in ("PickCube-v1", "libero_10/3")] == ["maniskill", "libero_10"]


def test_latencies_older_than_the_window_are_forgotten() -> None:
    latencies = Latencies(window_us=1_000)
    assert latencies.quantile_ms(0, 0.95) is None
    latencies.add(100, 90_000)
    latencies.add(900, 10_000)
    assert latencies.quantile_ms(1_000, 1.0) == 90
    assert latencies.quantile_ms(1_200, 1.0) == 10
    assert latencies.quantile_ms(2_000, 1.0) is None
