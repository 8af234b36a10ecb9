"""A reinforcement-learning job that is stopped, wherever it waits: it ends soon and holds nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.scheduler.states import TrainingJobState
from tests.support.rl_faults import block_inference, block_training
from tests.support.rl_jobs import Job, make_job, rl_runtime, rl_spec


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    async with rl_runtime(tmp_path) as runtime:
        yield runtime


async def stopped(job: Job, condition: Callable[[], Any]) -> None:
    """Run until the condition holds, then cancel: it must end soon, and hold nothing (``run`` checks)."""
    running = asyncio.create_task(job.run())
    await job.until(condition)
    job.workflow.stop("cancelled")
    await asyncio.wait_for(running, 3)


async def test_cancelled_while_it_waits_for_seats(tmp_path: Path) -> None:
    async with rl_runtime(tmp_path, env_seats_per_tenant=2, env_seats_total=2) as runtime:
        held = await runtime.pool._desk.take("bob", 2, None)
        job = make_job(runtime, rl_spec())
        await stopped(job, lambda: runtime.pool.status().waiting)
        assert "waiting for environment seats: all are taken; place 1 in the queue" in job.told.logs()
        runtime.pool._desk.give_back(held)


async def test_cancelled_while_it_waits_to_start_a_rollout(tmp_path: Path) -> None:
    async with rl_runtime(tmp_path, rollouts_per_tenant=1) as runtime:
        taken = await runtime.rollouts.take("alice", 1, None)
        job = make_job(runtime, rl_spec())
        running = asyncio.create_task(job.workflow.run())
        await runtime.training.mount(job.mounted, weight=1)
        await job.until(lambda: runtime.rollouts.waiting)
        job.workflow.stop("cancelled")
        await asyncio.wait_for(running, 3)
        assert runtime.rollouts.waiting == 0
        runtime.rollouts.give_back(taken)
        await runtime.training.unmount(job.mounted)


async def test_cancelled_in_the_middle_of_a_chunk(
    runtime: LocalRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = tmp_path / "faults"
    faults.write_bytes(b"x")
    monkeypatch.setenv("FAULTS_FILE", str(faults))
    job = make_job(runtime, rl_spec(environment={"id": "faulty/Hang"}))
    await stopped(job, lambda: not faults.read_bytes())
    (used,) = [use for use in job.told.uses if use.work == "rollout/1"]
    assert (used.steps, used.reason) == (8, None), "what was played before is paid"


async def test_cancelled_while_it_waits_for_a_decision(runtime: LocalRuntime) -> None:
    job = make_job(runtime, rl_spec())
    release = block_inference(runtime)
    try:
        await stopped(job, lambda: runtime.inference.policies.pinned())
    finally:
        release.set()
    await job.until(lambda: not runtime.inference.policies.pinned())  # what was on the device ends for nobody


async def test_cancelled_while_it_waits_for_training(runtime: LocalRuntime) -> None:
    job = make_job(runtime, rl_spec(collection={"max_staleness": 0}))
    running = asyncio.create_task(job.run())
    await job.until(lambda: job.workflow._published == 0)
    release = block_training(runtime)
    try:
        await job.until(lambda: job.in_state(TrainingJobState.LEASED))
        await asyncio.sleep(0.1)
        job.workflow.stop("cancelled")
        await asyncio.sleep(0.2)
    finally:
        release.set()
    await asyncio.wait_for(running, 3)


async def test_a_stopped_producer_lets_the_others_hear_of_it(runtime: LocalRuntime) -> None:
    """Nothing can be reserved for a stopped job, and asking for it at once again would block everybody."""
    job = make_job(runtime, rl_spec())
    await runtime.training.mount(job.mounted, weight=1)
    first = await job.workflow._player.look()
    runtime.queue.stop_job(job.mounted, reason="cancelled")
    async with asyncio.timeout(3):
        await job.workflow._producer(first)
    await runtime.training.unmount(job.mounted)


async def test_cancelled_before_it_has_begun(runtime: LocalRuntime) -> None:
    job = make_job(runtime, rl_spec())
    job.workflow.stop("cancelled")
    await asyncio.wait_for(job.run(), 3)
    assert job.told.uses == []
