"""Evaluation as it is played: what one lost environment costs, whom it waits for, and what ends it."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.environments.errors import SchemaMismatch
from gpu_runtime.environments.registry import make_environment
from gpu_runtime.environments.session import Deadlines
from gpu_runtime.inference.errors import ServiceStopped, UnknownVersion
from gpu_runtime.models.slots import Slot
from gpu_runtime.scheduler.inference_queue import InferenceLimits
from gpu_runtime.workflows import evaluation_seat
from gpu_runtime.workflows.actor import Debt
from gpu_runtime.workflows.evaluate import EvaluationWorkflow
from gpu_runtime.workflows.evaluation_result import Cause, EpisodeRecord
from tests.support.environments import REACH, children, pool_of, wanted
from tests.support.evaluations import ALICE, evaluated, planned, serving
from tests.support.exported_adapters import SIZE, Demonstrated, break_head
from tests.support.inference import Records, running


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Demonstrated:
    return Demonstrated.record(REACH, tmp_path_factory.mktemp("reach") / "data", episodes=40)


@pytest.fixture(scope="module")
def trained(demonstrated: Demonstrated) -> Slot:
    return demonstrated.train(steps=300)


async def test_a_version_that_is_not_kept_and_a_foreign_schema_are_refused_with_nothing_left(
    trained: Slot, demonstrated: Demonstrated
) -> None:
    missing = planned(trained, [1]).model_copy(update={"policy_version": 7})
    with pytest.raises(UnknownVersion, match=r"7 .* allowed: versions \[1\]"):
        await evaluated(trained, demonstrated, missing)
    with pytest.raises(SchemaMismatch, match=r"state: the policy's is .* allows .'agent_x"):
        await evaluated(trained, demonstrated, planned(trained, [1], "gym_pusht/PushT-v0"))
    assert children() == []


# Playing


async def test_an_environment_that_dies_costs_its_own_episode_only(trained: Slot, demonstrated: Demonstrated) -> None:
    protocol = planned(trained, [1, 2, 666, 4, 5], "faulty/Never")
    limits = {"deadlines": Deadlines(open_s=60, reset_s=1, step_s=10)}
    result = await evaluated(trained, demonstrated, protocol, limits=limits, parallel=2)
    assert [record.cause is Cause.ERROR for record in result.episodes] == [False, False, True, False, False]
    (error,) = result.errors
    assert (error.seed, error.message) == (666, "environment lost (deadline): reset took more than 1 s")
    assert result.success_once.episodes == 5
    assert all(record.steps > 0 for record in result.episodes if record.seed != 666)


async def test_predictions_of_a_lost_episode_are_made_up_for_by_those_that_follow_in_this_task_or_the_next(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS_FILE", str(tmp_path / "faults"))
    records, owed = Records(), Debt()
    episodes: list[EpisodeRecord] = []
    service = serving(trained, demonstrated, records=records)
    async with running(service), pool_of() as pool:
        for seeds, faults in ((range(50_000, 50_004), 1), ([50_004], 1), (range(50_005, 50_008), 0)):
            (tmp_path / "faults").write_bytes(b"x" * faults)
            protocol = planned(trained, seeds, "faulty/Segfault", executed_steps=2, goes_on_after_success=True)
            workflow = EvaluationWorkflow(
                protocol=protocol,
                policy=trained.policy,
                payer=ALICE,
                service=service,
                pool=pool,
                parallel=1,
                owed=owed,
            )
            episodes += (await workflow.run()).episodes
    lost = [record.seed for record in episodes if record.cause is Cause.ERROR]
    assert lost == [50_000, 50_004]
    chunks: Counter[str | None] = Counter()
    for record in records.written:
        for usage in record.usages:
            chunks[usage.reason] += usage.chunks
    assert owed.chunks == 0
    assert chunks["environment_lost"] == 2 * 3  # the fault comes with the sixth step, in the third chunk of two
    played = [record.predict for record in episodes if record.cause is not Cause.ERROR]
    assert chunks[None] == sum(predict.predictions for predict in played if predict)


async def test_an_episode_that_is_redone_for_nothing_and_lost_is_owed_nothing(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS_FILE", str(tmp_path / "faults"))
    (tmp_path / "faults").write_bytes(b"x")
    owed, protocol = Debt(), planned(trained, [50_000], "faulty/Segfault", executed_steps=2)
    result = await evaluated(trained, demonstrated, protocol, redone=1, owed=owed)
    assert [record.cause for record in result.episodes] == [Cause.ERROR]
    assert owed.chunks == 0


async def test_a_policy_without_finite_actions_fails_every_episode_by_name(demonstrated: Demonstrated) -> None:
    broken = break_head(demonstrated.train(steps=0))
    result = await evaluated(broken, demonstrated, planned(broken, [1, 2]))
    assert [error.message.startswith("non_finite") for error in result.errors] == [True, True]
    assert (result.success_once.successes, result.success_once.episodes) == (0, 2)


async def test_a_full_queue_delays_an_episode_and_fails_none(trained: Slot, demonstrated: Demonstrated) -> None:
    settings = {"limits": InferenceLimits(per_session=1, per_tenant=1, guaranteed_per_tenant=1), "wait_us": 20_000}
    protocol = planned(trained, range(60))  # enough that players meet, however far apart their environments started
    result = await evaluated(trained, demonstrated, protocol, parallel=3, service_settings=settings)
    assert result.errors == ()
    assert result.mean_group_size == 1
    assert result.predict
    assert result.predict.max_ms > 50  # somebody had to ask again


async def test_a_long_evaluation_lets_others_have_its_seat_in_between_and_finds_the_same(
    trained: Slot, demonstrated: Demonstrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_seat, "TURN_S", 0.0)
    protocol, service = planned(trained, range(50_000, 50_006)), serving(trained, demonstrated)
    quiet = await evaluated(trained, demonstrated, protocol)
    async with running(service), pool_of(seats_total=1) as pool:
        workflow = EvaluationWorkflow(
            protocol=protocol, policy=trained.policy, payer=ALICE, service=service, pool=pool, parallel=1
        )
        evaluation = asyncio.create_task(workflow.run())
        while pool.status().seats != {"alice": 1}:
            await asyncio.sleep(0.01)
        async with await asyncio.wait_for(pool.open(wanted(tenant="bob")), 30):
            assert not evaluation.done()
            assert pool.status().seats == {"bob": 1}
        result = await evaluation
    assert [episode.cause for episode in result.episodes] == [episode.cause for episode in quiet.episodes]
    assert [episode.return_ for episode in result.episodes] == [episode.return_ for episode in quiet.episodes]


def seed_solved_at_reset() -> int:
    environment = make_environment(REACH)
    for seed in range(100_000):
        environment.reset(seed)
        if environment.succeeded():
            return seed
    raise AssertionError("no seed is solved at reset")


async def test_luck_is_no_success_and_company_changes_no_episode(trained: Slot, demonstrated: Demonstrated) -> None:
    protocol = planned(trained, [seed_solved_at_reset(), *range(50_000, 50_010)])
    alone = await evaluated(trained, demonstrated, protocol, parallel=1)
    together = await evaluated(trained, demonstrated, protocol, parallel=4, service_settings={"wait_us": 50_000})
    lucky = alone.episodes[0]
    assert (lucky.cause, lucky.steps, lucky.success_once) == (Cause.SOLVED_AT_RESET, 0, False)
    assert (alone.planned, alone.counted, alone.distinct_initial_states) == (11, 10, 11)
    assert alone.mean_group_size == 1
    assert together.mean_group_size
    assert together.mean_group_size > 1.5
    for one, other in zip(alone.episodes, together.episodes, strict=True):
        assert (one.initial_state, one.cause, one.steps) == (other.initial_state, other.cause, other.steps)
        assert one.return_ == pytest.approx(other.return_, abs=1e-4)
    assert alone.protocol_hash == together.protocol_hash


async def test_every_episode_is_what_a_plain_loop_in_one_process_makes_of_it(
    trained: Slot, demonstrated: Demonstrated
) -> None:
    result = await evaluated(trained, demonstrated, planned(trained, range(50_000, 50_008), executed_steps=3))
    environment, policy = make_environment(REACH, size=SIZE), trained.policy
    for record in result.episodes:
        state_S, steps, total, over = environment.reset(record.seed).state_S, 0, 0.0, False
        while not over:
            picture = environment.render()["observation.images.top"]
            feature = VLAFeature(images=(picture,), instruction=environment.instruction)
            features = demonstrated.backbone.encode([feature], [policy.taps])
            for action_A in policy.act(features, state_S[None], seed=0)[0, :3]:
                taken = environment.step(action_A)
                state_S, steps, total = taken.observation.state_S, steps + 1, total + taken.reward
                over = taken.terminated or taken.truncated
                if over:
                    break
        assert (record.steps, record.success_at_end) == (steps, taken.success)
        assert record.return_ == pytest.approx(total, abs=1e-4)


async def test_going_on_after_success_uses_all_steps_and_tells_the_two_successes_apart(
    trained: Slot, demonstrated: Demonstrated
) -> None:
    protocol = planned(trained, range(50_000, 50_006), goes_on_after_success=True, max_steps=18, executed_steps=2)
    result = await evaluated(trained, demonstrated, protocol)
    assert {(record.cause, record.steps) for record in result.episodes} == {(Cause.MAX_STEPS, 18)}
    assert all(record.predict and record.predict.predictions == 9 for record in result.episodes)
    assert result.success_once.successes >= max(3, result.success_at_end.successes)


async def test_a_service_that_stops_ends_the_evaluation_instead_of_failing_episodes(
    trained: Slot, demonstrated: Demonstrated
) -> None:
    service = serving(trained, demonstrated)
    async with pool_of() as pool:
        workflow = EvaluationWorkflow(
            protocol=planned(trained, range(50)), policy=trained.policy, payer=ALICE, service=service, pool=pool
        )
        task = asyncio.create_task(workflow.run())
        service.stop()
        with pytest.raises(ServiceStopped):
            await task
        assert pool.status().seats == {}
