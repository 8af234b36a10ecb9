"""What environments cost is told to the microsecond, also where one did not start: measured is metered."""

from pathlib import Path

import pytest

from gpu_runtime.environments.errors import EnvironmentLost
from gpu_runtime.environments.seats import SeatWait
from gpu_runtime.workflows.evaluation_result import EpisodeRecord
from gpu_runtime.workflows.evaluation_seat import EvaluationSeat
from gpu_runtime.workflows.evaluation_witness import Played
from gpu_runtime.workflows.ports import EnvironmentUse
from gpu_runtime.workflows.sft import WorkloadFailed
from tests.support.environments import pool_of, still, triggering, wanted
from tests.support.rl_jobs import make_job, rl_runtime, rl_spec


@pytest.fixture(autouse=True)
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One fault in the middle of a try; see ``faulty_environments``."""
    path = tmp_path / "faults"
    path.write_bytes(b"x")
    monkeypatch.setenv("FAULTS_FILE", str(path))
    return path


class Hearing:
    """A witness that remembers what was used."""

    def __init__(self) -> None:
        self.uses: list[EnvironmentUse] = []

    def waits(self, wait: SeatWait) -> None:
        raise AssertionError("there is room")

    async def used(self, use: EnvironmentUse) -> None:
        self.uses.append(use)

    async def ended(self, played: Played) -> EpisodeRecord:
        return played.record


async def test_a_seat_that_cannot_be_opened_again_tells_no_step_twice() -> None:
    heard = Hearing()
    async with pool_of() as pool:
        seat = EvaluationSeat(spec=wanted("faulty/Fragile"), pool=pool, witness=heard)
        session = await seat.ready()
        await session.reset([1])
        await session.step(still(1))
        with pytest.raises(EnvironmentLost):
            await session.step(triggering(1, 0))
        await seat.tell(step=0, work="first", reason="environment_lost")
        with pytest.raises(EnvironmentLost):
            await seat.ready()
        await seat.tell(step=1, work="second", reason="environment_lost")
        await seat.ready()
        await seat.tell(step=2, work="third", reason=None)
        await seat.close()
        assert [(use.work, use.steps) for use in heard.uses] == [("first", 2), ("second", 0), ("third", 0)]
        assert all(use.busy_us > 0 for use in heard.uses)
        assert abs(sum(use.busy_us for use in heard.uses) - pool.busy.calls_us) <= len(heard.uses)  # rounded down each


@pytest.mark.parametrize(
    ("environment", "reason", "words", "looks"),
    [
        ("faulty/CrashAtStart", "environment_lost", "SIGSEGV", 3),
        ("faulty/Missing", "simulator_missing", "needs a Vulkan device", 1),
    ],
)
async def test_a_simulator_that_cannot_start_ends_the_job_with_a_reason_and_costs_nothing(
    tmp_path: Path, environment: str, reason: str, words: str, looks: int
) -> None:
    async with rl_runtime(tmp_path) as runtime:
        job = make_job(runtime, rl_spec(environment={"id": environment}))
        with pytest.raises(WorkloadFailed, match=words) as failed:
            await job.run()
        assert failed.value.failure.reason == reason
        assert [(use.steps, use.reason) for use in job.told.uses] == [(0, reason)] * looks
        told_us = sum(use.busy_us for use in job.told.uses)
        assert all(use.busy_us > 0 for use in job.told.uses)
        assert abs(told_us - runtime.pool.busy.calls_us) <= looks  # the service's own account; rounded down each


async def test_time_spent_on_a_session_that_did_not_open_is_metered_and_not_billed(tmp_path: Path) -> None:
    async with rl_runtime(tmp_path) as runtime:
        job = make_job(runtime, rl_spec(environment={"id": "faulty/Fragile"}, training={"iterations": 2}))
        await job.run()
        assert runtime.pool.status().lost == {"crashed": 2}
        lost = [use for use in job.told.uses if use.reason is not None]
        assert [(use.reason, use.steps > 0) for use in lost] == [
            ("environment_lost", True),
            ("environment_lost", False),
        ]
        told_us = sum(use.busy_us for use in job.told.uses)
        assert abs(told_us - runtime.pool.busy.calls_us) <= 3 * len(job.told.uses)
