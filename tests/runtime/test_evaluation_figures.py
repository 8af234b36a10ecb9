"""How an evaluation is counted, and what is refused before a step."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gpu_runtime.environments.base import StateKind
from gpu_runtime.environments.errors import SchemaMismatch
from gpu_runtime.environments.registry import FAMILIES, make_environment
from gpu_runtime.environments.results import Observation
from gpu_runtime.models.slots import Slot
from gpu_runtime.protocol.schema import ActionRepresentation, Camera, Gripper, GripperConvention, VectorFeature
from gpu_runtime.workflows.evaluation_plan import EvaluationRefused
from gpu_runtime.workflows.evaluation_protocol import SIMULATORS, EvaluationProtocol, package_versions
from gpu_runtime.workflows.evaluation_result import Cause, EpisodeRecord, EvaluationResult
from gpu_runtime.workflows.policy_fit import PolicyFit, kind_for
from gpu_runtime.workflows.wilson import success_rate
from tests.support.environments import REACH
from tests.support.evaluations import planned
from tests.support.exported_adapters import SIZE, Demonstrated


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> Demonstrated:
    return Demonstrated.record(REACH, tmp_path_factory.mktemp("reach") / "data", episodes=40)


@pytest.fixture(scope="module")
def trained(demonstrated: Demonstrated) -> Slot:
    return demonstrated.train(steps=300)


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
