"""Charts against a real runtime: every chart that is drawn for a job gets points, and no curve waits for nobody."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frontend.charts import KIND_BOARDS, board_of
from frontend.charts.model import Chart
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.messages import SubmitJob, WorkloadState
from tests.support.runtime import ended, events_of, make_config, running
from tests.support.runtime_policies import learned, policy_message, reach_message, record_reach

CRITIC = {"value": {"hidden": [16]}}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {"type": "ppo", "reference_kl": 0.01, **CRITIC},
    "decoupled_ppo": {"type": "decoupled_ppo", **CRITIC},
    "grpo": {"type": "grpo", "group_size": 2},
    "reinforce": {"type": "reinforce", "reference_kl": 0.01},
}
NOT_IN_A_SHORT_RUN = {f"rollout/staleness/{age}" for age in range(2, 65)}  # of jobs that allow so much


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A job's specification and the names of the series that the runtime told of it."""

    spec: dict[str, Any]
    series: frozenset[str]

    @property
    def charts(self) -> list[Chart]:
        return [chart for group in board_of(self.spec["kind"]).for_spec(self.spec) for chart in group.charts]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Every kind and every algorithm, a few steps each, on one runtime."""
    folder = tmp_path_factory.mktemp("told")
    (folder / "datasets").mkdir()
    return asyncio.run(_play(folder))


async def _play(folder: Path) -> dict[str, Told]:
    binding = record_reach(folder / "datasets", episodes=6)
    teacher = reach_message(binding, cameras=False, steps=8)
    training = teacher.spec.training.model_copy(update={"holdout_fraction": 0.0})
    whole = teacher.model_copy(
        update={"job_id": "whole", "spec": teacher.spec.model_copy(update={"training": training})}
    )
    async with running(make_config(folder / "state", folder / "datasets")) as runtime:
        policy = await learned(runtime, teacher)
        messages = [whole, *(_rl(policy, name) for name in ALGORITHMS)]
        messages.append(policy_message(policy, "evaluation", job_id="evaluation", episodes=2, videos_per_outcome=0))
        messages.append(policy_message(policy, "rollout", job_id="rollout", episodes=2, dataset_name="own"))
        for message in messages:
            await runtime.master.submit(message)
        for message in messages:
            status = await ended(runtime, message, 240)
            assert status.state is WorkloadState.SUCCEEDED, (message.job_id, status)
        return {message.job_id: _told(runtime, message) for message in [teacher, *messages]}


def _rl(policy: Any, algorithm: str) -> SubmitJob:
    strict = algorithm == "reinforce"
    return policy_message(
        policy,
        "rl",
        job_id=algorithm,
        algorithm=ALGORITHMS[algorithm],
        exploration={"type": "gaussian"},
        executed_steps=2,
        collection={"seats": 2, "episodes": 4, "max_staleness": 0 if strict else 1},
        training={"iterations": 3, "epochs": 1},
    )


def _told(runtime: LocalRuntime, message: SubmitJob) -> Told:
    bodies = [event.body for event in events_of(runtime, message.job_id) if event.body.type == "metrics"]
    series = frozenset(name for body in bodies for name in body.values)
    return Told(spec=message.spec.model_dump(mode="json"), series=series)


@pytest.mark.parametrize("job", ["teacher", "whole", *ALGORITHMS, "evaluation", "rollout"])
def test_no_chart_of_a_job_waits_for_what_its_kind_or_algorithm_never_tells(told: dict[str, Told], job: str):
    own = told[job]
    silent = {chart.id for chart in own.charts if not own.series & {curve.series for curve in chart.curves}}
    assert silent == set()


def test_every_curve_band_and_axis_names_a_series_that_somebody_tells(told: dict[str, Told]):
    known = frozenset().union(*(own.series for own in told.values()))
    named = {axis for board in KIND_BOARDS.values() for axis, _ in board.x_axes if axis}
    for board in KIND_BOARDS.values():
        for curve in (curve for group in board.groups for chart in group.charts for curve in chart.curves):
            named |= {curve.series, *curve.more, *([curve.episodes] if curve.episodes else [])}
    assert named - known == NOT_IN_A_SHORT_RUN
