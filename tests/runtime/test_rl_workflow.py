"""Reinforcement learning end to end: environment processes, inference, queue and trainer, all real."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_runtime.scheduler.staleness import Freshness
from gpu_runtime.scheduler.states import TrainingJobState
from gpu_runtime.workflows.rl_plan import RlPlan
from gpu_runtime.workflows.sft import WorkloadFailed
from tests.support.rl_faults import bump_version, pause_leases, shorten_deadlines
from tests.support.rl_jobs import Job, make_job, rl_runtime, rl_spec
from tests.support.runtime import GR00T, OFT, events_of

GRPO = {"type": "grpo", "group_size": 2}


@pytest.fixture
async def runtime(tmp_path: Path):
    async with rl_runtime(tmp_path) as runtime:
        yield runtime


async def test_versions_rise_one_by_one_to_the_last(runtime) -> None:
    job = make_job(runtime, rl_spec())
    published = job.watch_publications()
    await job.run()
    assert job.mounted.slot.policy_version == 3
    assert published == sorted(set(published))
    assert published[0] == 0
    assert [step for step, _ in job.trained("train/policy_loss")] == [1, 2, 3]
    names = ["return", "shaped_return", "success_once", "success_at_end", "episode_steps", "episodes", "env_steps"]
    names += ["env_steps_per_s", "dropped_stale", "dropped_lost", "solved_at_reset", "distinct_starts"]
    for name in [*(f"rollout/{name}" for name in names), "service/predict_p95_ms", "service/predict_group_size"]:
        assert [step for step, _ in job.trained(name)] == [1, 2, 3], name
    assert [use.work for use in job.told.uses] == ["check", "rollout/1", "rollout/2", "rollout/3"]
    played = [use.steps for use in job.told.uses]
    assert [int(value) for _, value in job.trained("rollout/env_steps")] == [sum(played[: at + 2]) for at in range(3)]
    assert all(use.busy_us > 0 and use.reason is None for use in job.told.uses)


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_time_of_a_rollout_is_told_with_the_processes_it_is_of(runtime, processes: int) -> None:
    job = make_job(runtime, rl_spec(collection={"processes": processes}, training={"iterations": 1}))
    await job.run()
    assert [(use.seats, use.processes) for use in job.told.uses if use.work == "rollout/1"] == [(2, processes)]


async def test_predictions_are_billed_to_the_job_and_every_decision_is_one_chunk(runtime) -> None:
    job = make_job(runtime, rl_spec())
    await job.run()
    episodes = [episode for batch in job.batches for episode in batch]
    decisions = sum(len(episode.decisions) for episode in episodes)
    finals = sum(episode.final_value is not None for episode in episodes)
    assert finals == len(episodes), "each was cut off, and its end was valued"
    await job.until(lambda: job.used("predict.chunks") == {True: decisions + finals, False: 0})


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
async def test_no_batch_is_trained_on_that_is_older_than_allowed(runtime, max_staleness: int) -> None:
    job = make_job(runtime, rl_spec(collection={"max_staleness": max_staleness}, training={"iterations": 6}))
    await job.run()
    assert [step for step, _ in job.trained("rollout/staleness_max")] == list(range(1, 7))
    assert worst_age(job) <= max_staleness
    assert job.mounted.dropped_stale == 0, "admission lets nothing begin that would be too old"
    if max_staleness == 0:
        for step, episodes in enumerate(job.batches, start=1):
            versions = {decision.version for episode in episodes for decision in episode.decisions}
            assert versions == {step - 1}, "strictly in turn"


def worst_age(job: Job) -> float:
    """Updates between acting and learning, as the trainer found them."""
    return max(age for _, age in job.trained("rollout/staleness_max"))


async def test_a_job_that_lies_about_its_versions_is_caught_by_the_same_check(runtime, monkeypatch) -> None:
    job = make_job(runtime, rl_spec(collection={"max_staleness": 0}, training={"iterations": 6}))
    monkeypatch.setattr(
        type(job.workflow), "_freshness", lambda self: Freshness(behaviour_version=100, max_staleness=0)
    )
    await job.run()
    assert worst_age(job) > 0


async def test_grpo_groups_share_a_start_and_come_complete(runtime) -> None:
    job = make_job(runtime, rl_spec(algorithm=GRPO, collection={"episodes": 6, "seats": 4}))
    await job.run()
    for episodes in job.batches:
        assert Counter(episode.group for episode in episodes) == {0: 2, 1: 2, 2: 2}
        assert len({(episode.group, episode.initial_state) for episode in episodes}) == 3
        assert all(decision.value is None for episode in episodes for decision in episode.decisions)


async def test_what_luck_had_solved_is_counted_and_not_learned_from(runtime) -> None:
    spec = rl_spec(environment={"id": "faulty/LuckyOdd"}, collection={"episodes": 8}, training={"iterations": 2})
    job = make_job(runtime, spec)
    await job.run()
    for step, episodes in enumerate(job.batches, start=1):
        seeds = [planned.seed for planned in RlPlan.of(spec).tries(step)]
        assert {episode.seed for episode in episodes} == {seed for seed in seeds if seed % 2 == 0}
        assert job.trained("rollout/solved_at_reset")[step - 1][1] == sum(seed % 2 for seed in seeds)


@pytest.mark.parametrize(
    ("head", "exploration"),
    [(OFT, "gaussian"), (GR00T | {"denoise_steps": 3}, "flow_sde"), (GR00T | {"denoise_steps": 3}, "flow_noise")],
    ids=["oft", "flow_sde", "flow_noise"],
)
async def test_heads_that_see_learn_from_what_they_played(runtime, head, exploration: str) -> None:
    """Pictures, queries and denoising chains all the way: rendered, decided on, put into the queue, trained on."""
    job = make_job(runtime, rl_spec(exploration={"type": exploration}), cameras=True, head=head)
    before = {name: value.detach().clone() for name, value in job.mounted.slot.named_parameters().items()}
    await job.run()
    assert job.mounted.slot.policy_version == 3
    decisions = [decision for batch in job.batches for episode in batch for decision in episode.decisions]
    assert {decision.feature.images[0].shape for decision in decisions} == {(32, 32, 3)}
    assert len({decision.handle for decision in decisions}) > 20, "no two pictures are alike"
    if exploration != "gaussian":
        drawn = [[int(decision.trace["step"]) for decision in episode.decisions] for episode in job.batches[0]]
        assert all(set(steps) == {0, 1, 2} for steps in drawn), "each sample draws the step that is random"
        assert len({tuple(steps) for steps in drawn}) > 1
    assert max(gap for _, gap in job.trained("train/log_prob_gap_max")) < 1e-5
    assert dict(job.trained("train/feature_hits")) == {1: 1.0, 2: 1.0, 3: 1.0}
    after = job.mounted.slot.named_parameters()
    assert any(not torch.equal(before[name], after[name]) for name in before if name.startswith("actor.head."))


@pytest.mark.parametrize("cameras", [False, True], ids=["words_alone", "pictures"])
async def test_a_batch_books_as_many_tokens_as_its_forward_may_need_and_words_alone_once(
    tmp_path: Path, cameras: bool
) -> None:
    """Nothing is kept of the rollouts' features, so that the trainer has to compute every one of them again."""
    async with rl_runtime(tmp_path, handle_bytes=0) as runtime:
        job = make_job(runtime, rl_spec(), cameras=cameras)
        booked, reserve = [], runtime.queue.reserve

        async def watched(*arguments: object, **options: Any) -> bool:
            booked.append((options["samples"], options["tokens"]))
            return await reserve(*arguments, **options)

        runtime.queue.reserve = watched
        await job.run()
        assert dict(job.trained("train/feature_hits")) == {1: 0.0, 2: 0.0, 3: 0.0}
        spans = [event.body for event in events_of(runtime) if event.body.type == "span"]
        needed = [span.tokens for span in spans if span.service == "training"]
    assert len(needed) == len(booked) == 3
    for (samples, tokens), run in zip(booked, needed, strict=True):
        assert 0 < run <= tokens
        assert tokens == run if not cameras else tokens % samples == 0


async def test_it_ends_when_as_many_environment_steps_were_played_as_may_be(runtime) -> None:
    job = make_job(runtime, rl_spec(training={"iterations": 50, "max_env_steps": 170}))
    await job.run()
    assert job.mounted.slot.policy_version == 3  # of 80 steps each: the third began below the limit


async def test_after_a_restart_the_first_batches_are_redone_from_the_same_starts_and_nobody_pays_twice(
    runtime,
) -> None:
    spec = rl_spec(training={"iterations": 5})
    before = make_job(runtime, spec)
    await before.run()
    job = make_job(runtime, spec, tenant="bob", resumed=True, step=1, env_steps=80)
    await job.run()
    played = [[[episode.seed for episode in batch] for batch in one.batches] for one in (before, job)]
    assert played[1] == played[0][1:]
    reasons = [use.reason for use in job.told.uses if use.work != "check"]
    assert reasons == ["redone_after_restart"] * 2 + [None] * 2
    await job.until(lambda: job.used("predict.chunks") == {True: 2 * 4 * 11, False: 2 * 4 * 11})
    assert job.trained("rollout/env_steps")[-1][1] == 80 + 4 * 80


async def test_two_tenants_do_not_wait_for_each_other(runtime, faults) -> None:
    faults(1)
    hanging = make_job(runtime, rl_spec(environment={"id": "faulty/Hang"}), tenant="alice")
    healthy = make_job(runtime, rl_spec(), tenant="bob")
    stuck = asyncio.create_task(hanging.run())
    await healthy.run()
    assert healthy.mounted.slot.policy_version == 3
    assert sum(use.steps for use in healthy.told.uses) == 3 * 80, "all of it while the other one hangs"
    assert runtime.pool.status().lost == {}, "and before its deadline"
    assert runtime.pool.status().seats == {"alice": 2}
    assert hanging.mounted.slot.policy_version < 3
    hanging.workflow.stop("cancelled")
    await asyncio.wait_for(stuck, 5)


async def test_a_rollout_waits_for_its_tenants_turn_and_says_so(tmp_path: Path) -> None:
    async with rl_runtime(tmp_path, rollouts_per_tenant=1) as runtime:
        taken = await runtime.rollouts.take("alice", 1, None)
        job = make_job(runtime, rl_spec())
        running = asyncio.create_task(job.run())
        await job.until(lambda: runtime.rollouts.waiting)
        runtime.rollouts.give_back(taken)
        await running
        assert job.told.logs() == [
            "waiting to start a rollout: your own jobs hold as many as you may have; place 1 in the queue"
        ]


# --- faults


@pytest.fixture
def faults(tmp_path: Path, monkeypatch):
    """Let the faulty environments fail so often, each time in the middle of a try."""
    path = tmp_path / "faults"
    monkeypatch.setenv("FAULTS_FILE", str(path))
    return lambda count: path.write_bytes(b"x" * count)


@pytest.mark.parametrize("fault", ["Hang", "Segfault", "Exit", "Raise", "NanReward", "NanState", "Garbage"])
async def test_a_lost_environment_costs_a_replay_at_the_platforms_price(runtime, faults, fault: str) -> None:
    faults(1)
    shorten_deadlines(runtime, step_s=1.0)
    spec = rl_spec(environment={"id": f"faulty/{fault}"}, algorithm=GRPO)
    job = make_job(runtime, spec)
    await job.run()
    assert job.mounted.slot.policy_version == 3
    assert all(Counter(episode.group for episode in episodes) == {0: 2, 1: 2} for episodes in job.batches)
    assert job.trained("rollout/dropped_lost")[-1][1] == 2  # both seats were of that session
    (lost,) = [use for use in job.told.uses if use.reason is not None]
    assert (lost.reason, lost.steps) == ("environment_lost", 8)  # two chunks of two, in two seats
    assert lost.busy_us > (1_000_000 if fault == "Hang" else 0)
    billed = sum(use.steps for use in job.told.uses if use.reason is None)
    assert billed == sum(episode.steps for episodes in job.batches for episode in episodes)
    assert any("its tries are played again" in text for text in job.told.logs())
    await job.until(lambda: job.used("predict.chunks")[False] == 6)  # what the lost tries had decided


async def test_a_killed_environment_process_costs_a_replay(runtime) -> None:
    job = make_job(runtime, rl_spec(collection={"episodes": 32}))
    running = asyncio.create_task(job.run())
    await job.until(lambda: runtime.pool._used and runtime.rollouts.held())
    await asyncio.sleep(0.1)
    for process in list(runtime.pool._used):
        process._child.kill()
    await running
    assert job.mounted.slot.policy_version == 3
    assert job.trained("rollout/dropped_lost")[-1][1] == 2
    assert any("crashed" in text for text in job.told.logs())


async def test_three_sessions_lost_in_a_row_end_the_job_with_a_reason(runtime, faults) -> None:
    faults(99)
    job = make_job(runtime, rl_spec(environment={"id": "faulty/Segfault"}))
    with pytest.raises(WorkloadFailed) as failed:
        await job.run()
    assert failed.value.failure.reason == "environment_lost"
    assert "SIGSEGV" in failed.value.failure.message
    assert runtime.pool.status().lost == {"crashed": 3}
    assert [use.steps for use in job.told.uses if use.reason == "environment_lost"] == [8, 8, 8]
    assert len(job.told.logs()) == 3


@pytest.mark.parametrize(
    ("environment", "reason", "words"),
    [
        ("faulty/CrashAtStart", "environment_lost", "SIGSEGV"),
        ("joynexus/Reach-v1", "unknown_environment", "allowed: joynexus/Reach-v0"),
        ("gym_pusht/PushT-v0", "schema_mismatch", "state"),
    ],
)
async def test_an_environment_that_cannot_be_ends_the_job_before_a_step(
    runtime, environment: str, reason: str, words: str
) -> None:
    job = make_job(runtime, rl_spec(environment={"id": environment}))
    with pytest.raises(WorkloadFailed, match=words) as failed:
        await job.run()
    assert failed.value.failure.reason == reason
    assert not any(use.steps for use in job.told.uses)


async def test_an_environment_that_crashes_at_the_first_look_is_looked_at_again(runtime, faults, tmp_path) -> None:
    faults(0)
    (tmp_path / "faults.start").touch()  # its first start crashes
    job = make_job(runtime, rl_spec(environment={"id": "faulty/Fragile"}, training={"iterations": 1}))
    await job.run()
    assert job.mounted.slot.policy_version == 1
    assert runtime.pool.status().lost == {"crashed": 1}
    looks = [use for use in job.told.uses if use.work == "check"]
    assert [(use.reason, use.steps) for use in looks] == [("environment_lost", 0), (None, 0)]
    (said,) = job.told.logs()
    assert said.endswith("session 1 of 3 lost in a row, another one is looked at")


@pytest.mark.parametrize(("environment", "losses"), [("faulty/CrashAtStart", 3), ("faulty/Missing", 0)])
async def test_three_first_looks_are_all_there_are_and_a_missing_simulator_is_looked_for_once(
    runtime, environment: str, losses: int
) -> None:
    job = make_job(runtime, rl_spec(environment={"id": environment}))
    with pytest.raises(WorkloadFailed):
        await job.run()
    assert sum(runtime.pool.status().lost.values()) == losses
    looks = [use.reason for use in job.told.uses]
    assert looks == (["environment_lost"] * 3 if losses else ["simulator_missing"])
    assert len(job.told.logs()) == losses


async def test_batches_that_are_all_too_old_at_once_are_dropped_and_the_run_goes_on(runtime) -> None:
    job = make_job(runtime, rl_spec(collection={"max_staleness": 3}, training={"iterations": 12}))
    running = asyncio.create_task(job.run())
    await job.until(lambda: job.mounted.slot.policy_version == 1)
    go_on = pause_leases(runtime)
    await job.until(
        lambda: len(job.in_state(TrainingJobState.READY)) >= 2 and not job.in_state(TrainingJobState.LEASED)
    )
    dropped = len(job.in_state(TrainingJobState.READY))
    bump_version(job, by=6)
    go_on()
    await running
    assert job.mounted.slot.policy_version == 12
    assert job.mounted.dropped_stale >= dropped
    assert worst_age(job) <= 3


async def test_nothing_but_stale_batches_ends_the_job_with_a_reason(runtime) -> None:
    job = make_job(runtime, rl_spec(collection={"max_staleness": 0, "episodes": 1}, training={"iterations": 99}))
    job.before_put(lambda: bump_version(job, by=1))
    with pytest.raises(WorkloadFailed) as failed:
        await job.run()
    assert failed.value.failure.reason == "all_rollouts_stale"
    assert job.mounted.dropped_stale == 10
