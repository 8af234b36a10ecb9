"""Evaluation: how figures are counted, what is refused before a step, and what one lost environment costs."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.environments.base import StateKind
from gpu_runtime.environments.errors import SchemaMismatch
from gpu_runtime.environments.pool import EnvironmentPool
from gpu_runtime.environments.registry import FAMILIES, make_environment
from gpu_runtime.environments.results import Observation
from gpu_runtime.environments.session import Deadlines, EnvironmentSession, SessionSpec
from gpu_runtime.inference.errors import ServiceStopped, UnknownVersion
from gpu_runtime.inference.served_policy import ServedPolicy
from gpu_runtime.inference.service import InferenceService
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.schema import ActionRepresentation, Camera, Gripper, GripperConvention, VectorFeature
from gpu_runtime.scheduler.inference_queue import InferenceLimits
from gpu_runtime.workflows import evaluation_seat
from gpu_runtime.workflows.actor import Debt
from gpu_runtime.workflows.evaluate import EvaluationWorkflow, Payer
from gpu_runtime.workflows.evaluation_plan import EvaluationRefused, plan
from gpu_runtime.workflows.evaluation_protocol import SIMULATORS, EvaluationProtocol, package_versions
from gpu_runtime.workflows.evaluation_result import Cause, EpisodeRecord, EvaluationResult
from gpu_runtime.workflows.evaluation_videos import Film, VideoShelf, draw
from gpu_runtime.workflows.policy_fit import PolicyFit, kind_for
from gpu_runtime.workflows.wilson import success_rate
from tests.support.environments import REACH, children, pool_of, wanted
from tests.support.exported_adapters import SIZE, Demonstrated, break_head
from tests.support.inference import Records, make_service, running
from tests.support.rl_jobs import reach_policy

ALICE = Payer(tenant_id="alice", job_id="job", slot_id="arm")


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Demonstrated:
    return Demonstrated.record(REACH, tmp_path_factory.mktemp("reach") / "data", episodes=40)


@pytest.fixture(scope="module")
def trained(demonstrated: Demonstrated) -> Slot:
    return demonstrated.train(steps=300)


def planned(slot: Slot, seeds: Sequence[int], environment: str = REACH, **options) -> EvaluationProtocol:
    return plan(
        slot.policy, environment=environment, seeds=tuple(seeds), adapter_id="a" * 64, policy_version=1, **options
    )


async def evaluated(
    slot: Slot,
    demonstrated: Demonstrated,
    protocol: EvaluationProtocol,
    *,
    limits: dict | None = None,
    service_settings: dict | None = None,
    **options,
) -> EvaluationResult:
    """Play the protocol on a service and a pool of its own; nothing may be left of either."""
    service = serving(slot, demonstrated, **(service_settings or {}))
    async with running(service), pool_of(**(limits or {})) as pool:
        workflow = EvaluationWorkflow(
            protocol=protocol, policy=slot.policy, payer=ALICE, service=service, pool=pool, **options
        )
        try:
            return await workflow.run()
        finally:
            assert pool.status().seats == {}
            assert service.policies.pinned() == 0


def serving(slot: Slot, demonstrated: Demonstrated, *, records: Records | None = None, **settings) -> InferenceService:
    """Not running yet; has version 1 of alice's arm."""
    service = make_service(records or Records(), **settings)
    service.policies.open("alice", "arm")
    service.policies.publish("alice", "arm", 1, ServedPolicy.freeze(slot.policy, demonstrated.backbone))
    return service


# Figures


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [(9, 10, 0.596, 0.982), (45, 50, 0.786, 0.957), (50, 50, 0.929, 1.0), (450, 500, 0.871, 0.923), (0, 10, 0, 0.278)],
)
def test_wilson_intervals_are_the_published_ones(successes: int, episodes: int, low: float, high: float) -> None:
    found = success_rate(successes, episodes)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


def test_no_episode_gives_no_rate_and_more_successes_than_episodes_are_refused() -> None:
    assert success_rate(0, 0).rate is None
    with pytest.raises(ValueError, match="successes: 3, allowed: 0 to 2"):
        success_rate(3, 2)


def episode(
    seed: int, cause: Cause, *, once: bool = False, end: bool = False, state: str | None = "s"
) -> EpisodeRecord:
    return EpisodeRecord(
        seed=seed,
        initial_state=state,
        cause=cause,
        success_once=once,
        success_at_end=end,
        steps=4,
        return_=float(seed),
        predict=None,
        error="gone" if cause is Cause.ERROR else None,
    )


def figures(protocol: EvaluationProtocol, records: Sequence[EpisodeRecord]) -> EvaluationResult:
    return EvaluationResult.of(protocol, records, predict_s=[], group_sizes=[], wall_s=1.0)


def test_errors_count_as_failures_and_what_was_solved_at_reset_counts_as_nothing(trained: Slot) -> None:
    records = [
        episode(1, Cause.SUCCESS, once=True, end=True),
        episode(2, Cause.ERROR, state=None),
        episode(3, Cause.SOLVED_AT_RESET, state="t"),
        episode(4, Cause.MAX_STEPS, once=True, end=False),
    ]
    result = figures(planned(trained, [1, 2, 3, 4]), records)
    assert (result.planned, result.counted) == (4, 3)
    assert (result.success_once.successes, result.success_once.episodes) == (2, 3)
    assert (result.success_at_end.successes, result.success_at_end.episodes) == (1, 3)
    assert [error.model_dump() for error in result.errors] == [{"seed": 2, "message": "gone"}]
    assert result.solved_at_reset == (3,)
    assert result.distinct_initial_states == 2
    assert result.mean_return == 2.5  # of the two that were played


def test_a_planned_episode_without_a_record_cannot_be_counted_away(trained: Slot) -> None:
    with pytest.raises(ValueError, match="records: 1, allowed: one for each of 2 planned"):
        figures(planned(trained, [1, 2]), [episode(1, Cause.SUCCESS, once=True)])


def test_the_protocols_hash_follows_every_field(trained: Slot) -> None:
    protocol = planned(trained, [1, 2])
    assert protocol.hash == planned(trained, [1, 2]).hash
    others = [
        planned(trained, [2, 1]),
        planned(trained, [1, 2], max_steps=9),
        planned(trained, [1, 2], executed_steps=2),
        planned(trained, [1, 2], goes_on_after_success=True),
        protocol.model_copy(update={"packages": protocol.packages | {"numpy": "0"}}),
        protocol.model_copy(update={"policy_version": 2}),
    ]
    assert len({protocol.hash, *(other.hash for other in others)}) == 7
    assert {"torch", "numpy", "gymnasium", "joynexus"} <= protocol.packages.keys()


def test_the_simulators_of_every_family_are_part_of_the_protocol() -> None:
    assert SIMULATORS.keys() == FAMILIES.keys()
    assert {"gymnasium-robotics", "mujoco"} <= package_versions("gymnasium/FetchReach-v4").keys()
    assert package_versions("libero_spatial/0").keys() >= {"mujoco"}


# What is refused


CLOSING = Gripper(index=0, convention=GripperConvention.CLOSE_POSITIVE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cameras": (Camera(key="observation.images.left", height=9, width=9),)}, "sees .*top; .*shows: .*left"),
        ({"state": VectorFeature(key="s", names=("x", "y"))}, r"state: the policy's is \('x', 'y', 'goal_.*allows"),
        ({"action": VectorFeature(key="a", names=("dx", "dy"))}, r"velocity_x.*allows \('dx', 'dy'\)"),
        ({"representation": ActionRepresentation.ABSOLUTE_EE}, "delta_ee_scaled.*allows 'absolute_ee'"),
        ({"control_hz": 20.0}, "control_hz: the policy's is 10.0; the environment allows 20.0"),
        ({"gripper": CLOSING}, "gripper.index: the policy's is None; the environment allows 0"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_naming_both_sides(trained: Slot, changes: dict, message: str) -> None:
    schema = make_environment(REACH).schema().model_copy(update=changes)
    with pytest.raises(SchemaMismatch, match=message):
        PolicyFit.of(trained.policy, schema)


def test_the_other_grippers_sign_is_converted(trained: Slot) -> None:
    policy = SimpleNamespace(
        schema=trained.policy.schema.model_copy(update={"gripper": CLOSING}),
        views=trained.policy.views,
        state_dim=4,
    )
    opening = CLOSING.model_copy(update={"convention": GripperConvention.OPEN_POSITIVE})
    fit = PolicyFit.of(policy, make_environment(REACH).schema().model_copy(update={"gripper": opening}))  # type: ignore[arg-type]
    np.testing.assert_array_equal(fit.to_environment(np.ones((3, 2))), [[-1, 1]] * 3)


def test_a_first_state_in_another_unit_is_refused_naming_the_dimension_and_both_ranges(trained: Slot) -> None:
    environment = make_environment(REACH)
    fit = PolicyFit.of(trained.policy, environment.schema())
    for seed in range(200):
        fit.check_start(seen(environment.reset(seed).state_S))
    millimetres = environment.reset(3).state_S * [1, 1000, 1, 1]
    with pytest.raises(SchemaMismatch, match=r"dimension 1 \(y\): .* starts at .*data are from -.* to "):
        fit.check_start(seen(millimetres))


def seen(state_S: np.ndarray) -> Observation:
    return Observation(images=(), state_S=state_S, instruction="")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"executed_steps": 5}, "execute: 5, allowed: 1 to 4"), ({"seeds": (1, 2, 1)}, "seeds: some are there twice")],
)
def test_a_protocol_that_cannot_be_played_is_refused(trained: Slot, options: dict, message: str) -> None:
    with pytest.raises(EvaluationRefused, match=message):
        planned(trained, options.pop("seeds", (1,)), **options)


def test_pictures_are_drawn_as_large_as_the_data_and_resized_as_in_training(trained: Slot) -> None:
    large = trained.policy.schema.cameras[0].model_copy(update={"height": 64, "width": 64})
    policy = SimpleNamespace(
        schema=trained.policy.schema.model_copy(update={"cameras": (large,)}),
        views=trained.policy.views,
        spec=trained.policy.spec,
        state_dim=4,
        query_tokens=0,
    )
    assert kind_for(policy, REACH, StateKind.PROPRIOCEPTION).size == 64  # type: ignore[arg-type]
    fit = PolicyFit(policy=policy, to_environment=lambda actions: actions)  # type: ignore[arg-type]
    picture = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    (shown,) = fit.feature(replace(seen(np.zeros(4)), images=(picture,))).images
    assert shown.shape == (SIZE, SIZE, 3)


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


# Videos


async def test_videos_show_real_time_in_a_browsers_format_and_no_more_than_asked_for(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path
) -> None:
    protocol = planned(trained, range(50_000, 50_008))
    result = await evaluated(trained, demonstrated, protocol, shelf=VideoShelf(tmp_path, 2))
    filmed = [record for record in result.episodes if record.video]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(Path(r.video).name for r in filmed if r.video)
    won = [record for record in filmed if record.success_once]
    assert len(won) == 2
    assert all(Path(r.video or "").name == f"joynexus_Reach-v0_seed{r.seed}_success.mp4" for r in won)
    with av.open(won[0].video) as container:
        stream = container.streams.video[0]
        frames = sum(1 for _ in container.decode(stream))
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (frames, stream.average_rate) == (won[0].steps + 10, 10)


@pytest.mark.parametrize(
    ("per_outcome", "kept", "drawn"),
    [
        (1, ["success"], [True, True, False]),  # the check, the failure that was still wanted, and all others
        (1, [], [True, True]),  # a success is still waited for
        (1, ["success", "fail"], [False, False]),
        (0, [], [False, False]),
    ],
)
async def test_nothing_is_drawn_for_a_policy_without_cameras_once_no_film_is_wanted_and_figures_stay_the_same(
    demonstrated: Demonstrated,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    per_outcome: int,
    kept: list[str],
    drawn: list[bool],
) -> None:
    opened: list[bool] = []
    pool_open = EnvironmentPool.open

    async def watched(pool: EnvironmentPool, spec: SessionSpec, **options) -> EnvironmentSession:
        opened.append(spec.kind.cameras != ())
        return await pool_open(pool, spec, **options)

    blind = SimpleNamespace(policy=reach_policy(demonstrated.backbone))
    protocol = planned(blind, range(50_000, 50_005), max_steps=4)  # type: ignore[arg-type]
    whole = await evaluated(blind, demonstrated, protocol, parallel=1, shelf=VideoShelf(tmp_path / "all", 99))  # type: ignore[arg-type]
    monkeypatch.setattr(EnvironmentPool, "open", watched)
    shelf = VideoShelf(tmp_path / "some", per_outcome, kept)
    result = await evaluated(blind, demonstrated, protocol, parallel=1, shelf=shelf)  # type: ignore[arg-type]
    assert opened == drawn
    assert all(record.video for record in whole.episodes)
    films = [record.seed for record in result.episodes if record.video]
    assert films == ([50_000] if any(drawn) else [])
    assert result.protocol_hash == whole.protocol_hash
    assert [untimed(record) for record in result.episodes] == [untimed(record) for record in whole.episodes]


def untimed(record: EpisodeRecord) -> EpisodeRecord:
    return record.model_copy(update={"video": None, "predict": None})


async def test_a_policy_that_sees_is_played_in_one_kind_of_environment_whatever_is_filmed(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = set()
    pool_open = EnvironmentPool.open

    async def watched(pool: EnvironmentPool, spec: SessionSpec, **options) -> EnvironmentSession:
        kinds.add(spec.kind)
        return await pool_open(pool, spec, **options)

    monkeypatch.setattr(EnvironmentPool, "open", watched)
    protocol = planned(trained, range(50_000, 50_004))
    await evaluated(trained, demonstrated, protocol, shelf=VideoShelf(tmp_path, 1, ["success", "fail"]))
    (kind,) = kinds
    assert kind.cameras == ("top",)


async def test_a_video_that_cannot_be_written_changes_no_figure(
    trained: Slot, demonstrated: Demonstrated, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    result = await evaluated(trained, demonstrated, planned(trained, [50_000]), shelf=VideoShelf(tmp_path / "file", 1))
    (record,) = result.episodes
    assert record.video is None
    assert record.video_error
    assert record.cause is not Cause.ERROR


async def test_a_video_that_cannot_be_written_leaves_its_place_to_the_next_one(
    demonstrated: Demonstrated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, tried = Film.write, []

    def full_once(film: Film, path: Path, **options) -> None:
        tried.append(film.seed)
        if len(tried) == 1:
            raise OSError("no space left on device")
        write(film, path, **options)

    monkeypatch.setattr(Film, "write", full_once)
    blind = SimpleNamespace(policy=reach_policy(demonstrated.backbone))
    protocol = planned(blind, range(50_000, 50_004), max_steps=4)  # type: ignore[arg-type]
    shelf = VideoShelf(tmp_path / "films", 1, ["success"])
    result = await evaluated(blind, demonstrated, protocol, parallel=1, shelf=shelf)  # type: ignore[arg-type]
    assert tried == [50_000, 50_001]
    assert [record.video_error for record in result.episodes] == ["no space left on device", None, None, None]
    (film,) = [record.video for record in result.episodes if record.video]
    assert Path(film).name == "joynexus_Reach-v0_seed50001_fail.mp4"
    assert Path(film).stat().st_size > 0


def test_a_picture_shows_every_view_unchanged_side_by_side_with_the_words_below() -> None:
    views = [np.full((64, 64, 3), 200, np.uint8), np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)]
    picture = draw(views, ["Push the cube onto the target. " * 8, "seed 7  step 12"])
    assert picture.shape[1] == 512
    assert picture.shape[0] % 2 == 0
    np.testing.assert_array_equal(picture[:256:4, :256:4], views[0])
    np.testing.assert_array_equal(picture[:256:4, 256::4], views[1])
    assert (picture[256:] > 150).any(), "no words"
    assert (draw(views, ["a"]) != draw(views, ["b"])).any()
