"""Versions redone after a kill, with a batch that was dropped for its age before it: told once, billed once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_runtime.models.rl_slots import RlSlot
from gpu_runtime.placement.roles import LocalRuntime
from gpu_runtime.protocol.ids import JobId
from gpu_runtime.protocol.messages import PolicyBinding, SubmitJob, WorkloadState
from gpu_runtime.scheduler.states import TrainingJobState
from tests.support.books import check_books, usage_by_meter, written
from tests.support.rl_faults import pause_leases
from tests.support.rl_jobs import Job, make_job, rl_runtime, rl_spec
from tests.support.runtime import RuntimeProcess, metric
from tests.support.runtime_policies import Shelved, policy_message

SPEC = rl_spec(collection={"max_staleness": 3}, training={"iterations": 8, "checkpoint_every": 3})
REACHED, CHECKPOINT = 5, 3  # at the kill
EPISODES = 4  # of a batch


def drop_what_is_ready(job: Job) -> None:
    """As if the queue had counted more updates for a moment than there were."""
    queue, key = job.runtime.queue.queue, JobId(job.mounted.key)
    version = queue.policy_version(key)
    queue.set_policy_version(key, version + 9)
    job.runtime.queue._drop_stale()
    queue.set_policy_version(key, version)


async def pause_at(job: Job, version: int) -> Callable[[], None]:
    """Return when the trainer has made this version, and leases nothing more until what is returned is called."""
    queue, paused = job.runtime.queue, []
    settle = queue.settle

    def watched(*arguments: Any, **options: Any) -> None:
        settle(*arguments, **options)
        if job.mounted.slot.step == version and not paused:
            paused.append(pause_leases(job.runtime))

    queue.settle = watched  # type: ignore[method-assign]
    await job.until(lambda: paused)
    queue.settle = settle  # type: ignore[method-assign]
    return paused[0]


async def killed_after_a_drop(runtime: LocalRuntime) -> Job:
    """A job that lost all that was ready at version 1 and came to REACHED; only its checkpoint was saved."""
    job = make_job(runtime, SPEC)
    await runtime.training.mount(job.mounted, weight=1)
    running = asyncio.create_task(job.workflow.run())
    go_on = await pause_at(job, 1)
    await job.until(lambda: len(job.in_state(TrainingJobState.READY)) >= 2)
    drop_what_is_ready(job)
    go_on()
    await pause_at(job, REACHED)
    runtime.queue.stop_job(job.mounted, reason="killed")
    await running
    await runtime.training.unmount(job.mounted)
    await job.until(lambda: runtime.inference.policies.pinned() == 0)  # what it had asked last is answered to nobody
    del runtime.queue.next_group
    return job


async def taken_up(runtime: LocalRuntime, before: Job) -> Job:
    """The same attempt from its newest checkpoint."""
    backbone = before.mounted.backbone
    options = {"spec": SPEC, "tap_width": backbone.tap_width, "device": backbone.info.device}
    loaded = runtime.training._saver._checkpoints.load_rl(before.mounted.job_id, 1, **options)
    assert loaded is not None
    assert isinstance(loaded.slot, RlSlot)
    assert loaded.slot.step == CHECKPOINT
    job = make_job(runtime, SPEC, resumed=True, step=CHECKPOINT, reached=REACHED)
    job.mounted.slot = loaded.slot
    return job


async def test_redone_versions_are_told_once_and_billed_once_though_a_batch_was_dropped(tmp_path: Path) -> None:
    async with rl_runtime(tmp_path) as runtime:
        before = await killed_after_a_drop(runtime)
        assert before.mounted.dropped_stale >= 2
        job = await taken_up(runtime, before)
        await job.run()
        assert job.mounted.slot.policy_version == SPEC.training.iterations
        events = job.events()
    versions = list(range(1, SPEC.training.iterations + 1))
    for name in ("train/policy_loss", "train/samples", "rollout/return", "rollout/env_steps"):
        assert [step for step, _ in metric(events, name)] == versions, name
    metered = [event.body for event in events if event.body.type == "usage"]
    trained = [usage for usage in metered if usage.lines[0].meter == "train.samples"]
    assert Counter(usage.step for usage in trained if usage.billable) == Counter(versions)
    again = {usage.step: usage.reason for usage in trained if not usage.billable}
    assert again == dict.fromkeys(range(CHECKPOINT + 1, REACHED + 1), "redone_after_restart")


async def test_a_version_is_told_with_the_returns_of_the_batch_that_made_it(tmp_path: Path) -> None:
    """Not with those of the batch that was meant to make it and was dropped."""
    async with rl_runtime(tmp_path) as runtime:
        job = await killed_after_a_drop(runtime)
        told = dict(job.trained("rollout/return"))
        means = [sum(episode.env_return for episode in batch) / len(batch) for batch in job.batches]
    dropped = job.mounted.dropped_stale
    consumed = means[:1] + means[1 + dropped :]
    assert [told[step] for step in range(1, REACHED + 1)] == pytest.approx(consumed[:REACHED])


def test_predictions_before_a_kill_are_not_billed_again_however_far_the_checkpoint(tmp_path: Path) -> None:
    """Nothing was saved: every version is redone, and those that had been paid for are free."""
    state, iterations, reached = tmp_path / "state", 12, 7
    for folder in ("teacher", "datasets"):
        (tmp_path / folder).mkdir()
    binding = Shelved.make(tmp_path / "teacher", cameras=False, steps=20).install(state)
    submit = sparse_message(binding, iterations)
    process = RuntimeProcess(state, tmp_path / "datasets")
    try:
        process.start()
        assert process.submit(submit).status_code == 202
        process.until(lambda: process.job("job").step >= reached or None)
        process.kill()
        process.start()
        status = process.until_ended("job")
        assert (status.state, status.step) == (WorkloadState.SUCCEEDED, iterations), status
        process.terminate()
    finally:
        process.close()
    events = written(state, "job")
    billed, free = usage_by_meter(events), usage_by_meter(events, billable=False)
    assert free["env.steps"] >= reached * EPISODES
    assert free["predict.chunks"] >= reached * EPISODES
    per_chunk = 2  # steps; an episode's last chunk may have fewer, and a batch was under way
    most = (billed["env.steps"] + iterations * EPISODES) / per_chunk + EPISODES * 10
    assert billed["predict.chunks"] <= most
    check_books(written(state))


def sparse_message(binding: PolicyBinding, iterations: int) -> SubmitJob:
    """REINFORCE on reach: no critic asks for values; its first checkpoint is its last."""
    return policy_message(
        binding,
        "rl",
        algorithm={"type": "reinforce", "baseline": "batch_mean"},
        exploration={"type": "gaussian"},
        executed_steps=2,
        collection={"seats": 2, "episodes": EPISODES, "max_staleness": 0},
        training={"iterations": iterations, "epochs": 1, "checkpoint_every": iterations},
    )
