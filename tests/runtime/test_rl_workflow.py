"""Reinforcement learning end to end: environment processes, inference, queue and trainer, all real."""

from pathlib import Path

from tests.support.rl_jobs import make_job, rl_runtime, rl_spec


async def test_versions_rise_one_by_one_to_the_last(tmp_path: Path) -> None:
    async with rl_runtime(tmp_path) as runtime:
        job = make_job(runtime, rl_spec())
        await job.run()
        assert job.mounted.slot.policy_version == 3
        print(job.told.events, job.told.uses)
