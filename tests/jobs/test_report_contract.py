"""The runtime's report and manifest as they really are: what API, tables, admission and client read is there."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.workflows.evaluation_protocol import EvaluationProtocol
from gpu_runtime.workflows.evaluation_report import EvaluationReport
from gpu_runtime.workflows.evaluation_result import Cause, EpisodeRecord, EvaluationResult
from jobs.api.evaluation_output import EvaluationOutput
from jobs.selectors.evaluation import EPISODE_COLUMNS, episodes_of
from jobs.services.admission.adapter_facts import AdapterFacts
from joynexus_client import answers
from tests.support.exported_adapters import HORIZON, Demonstrated

SEEDS = (50_000, 50_001)


def record(seed: int, cause: Cause) -> EpisodeRecord:
    solved, error = cause is Cause.SUCCESS, "the simulator was lost" if cause is Cause.ERROR else None
    return EpisodeRecord(
        seed=seed,
        initial_state=f"s{seed}",
        cause=cause,
        success_once=solved,
        success_at_end=solved,
        steps=20,
        return_=1.5,
        predict=None,
        error=error,
    )


def result(environment: str, *causes: Cause) -> EvaluationResult:
    protocol = EvaluationProtocol(
        environment=environment, state="proprioception", control_mode=None, cameras=(), render_size=64, image_size=64,
        seeds=SEEDS, max_steps=None, executed_steps=4, goes_on_after_success=False, adapter_id="a", policy_version=7,
        packages={},
    )  # fmt: skip
    records = [record(seed, cause) for seed, cause in zip(SEEDS, causes, strict=True)]
    return EvaluationResult.of(protocol, records, predict_s=[], group_sizes=[], wall_s=1.0)


@pytest.fixture
def report() -> dict[str, Any]:
    whole = EvaluationReport.of(
        [
            result("PushCube-v1", Cause.SUCCESS, Cause.ERROR),
            result("libero_spatial/0", Cause.SUCCESS, Cause.MAX_STEPS),
        ]
    )
    return json.loads(whole.model_dump_json(by_alias=True))


def test_every_episode_of_the_runtimes_report_is_a_row(report: dict[str, Any]) -> None:
    rows = [dict(zip(EPISODE_COLUMNS, own.row, strict=True)) for own in episodes_of(report)]
    assert [(row["task"], row["seed"], row["outcome"]) for row in rows] == [
        ("PushCube-v1", 50_000, "success"),
        ("PushCube-v1", 50_001, "error"),
        ("libero_spatial/0", 50_000, "success"),
        ("libero_spatial/0", 50_001, "max_steps"),
    ]
    assert rows[1]["error"] == "the simulator was lost"
    assert {row["return"] for row in rows} == {1.5}


def test_the_description_of_the_api_names_every_part_of_it(report: dict[str, Any]) -> None:
    described = EvaluationOutput()
    assert set(described.fields) == set(report)
    assert set(described.fields["overall"].fields) == set(report["overall"])
    assert set(described.fields["suites"].child.fields) == set(report["suites"][0])
    assert set(described.fields["overall"].fields["success_once"].fields) == set(report["overall"]["success_once"])


def test_the_clients_types_name_nothing_that_is_not_there(report: dict[str, Any]) -> None:
    for told, typed in (
        (report, answers.EvaluationReport),
        (report["overall"], answers.Totals),
        (report["suites"][0], answers.SuiteTotals),
        (report["tasks"][0], answers.TaskResult),
        (report["tasks"][0]["episodes"][0], answers.Episode),
        (report["overall"]["success_once"], answers.SuccessRate),
    ):
        assert set(typed.__annotations__) <= set(told), typed


def test_admission_reads_what_an_export_says(tmp_path: Path) -> None:
    demonstrated = Demonstrated.record("joynexus/Reach-v0", tmp_path / "data", episodes=1)
    folder = demonstrated.export(demonstrated.train(0), tmp_path / "adapter")
    facts = AdapterFacts.model_validate(json.loads((folder / "manifest.json").read_text()))
    assert (facts.base_model.name, facts.head.type, facts.action.horizon) == ("tiny-qwen3-vl", "mlp", HORIZON)
    assert facts.action.names == demonstrated.dataset.schema.action.names
    assert facts.cameras == tuple(camera.key for camera in demonstrated.dataset.schema.cameras)
    assert facts.state is not None
