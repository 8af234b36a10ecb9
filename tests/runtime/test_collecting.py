"""Playing tries over the seats of one session, and what is told of their use."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.environments.base import EnvironmentKind
from gpu_runtime.environments.errors import EnvironmentLost, LostReason
from gpu_runtime.environments.session import SessionSpec
from gpu_runtime.environments.slot import TryRules
from gpu_runtime.inference.messages import Mode, PredictReply, PredictRequest
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.environment_spec import RewardSpec
from gpu_runtime.scheduler.errors import InferenceQueueFull
from gpu_runtime.workflows.actor import Acting, Actor, Asked, Debt
from gpu_runtime.workflows.collect import Collector
from gpu_runtime.workflows.environment_use import SessionUse, Used
from gpu_runtime.workflows.playing import Playing, Try
from gpu_runtime.workflows.policy_fit import PolicyFit
from gpu_runtime.workflows.reward import NoStepLimit
from tests.support.environments import REACH, pool_of
from tests.support.inference import observation
from tests.support.rl_jobs import reach_policy

ACTING = Acting(tenant_id="alice", job_id="job", attempt=1, slot_id="job/1", mode=Mode.SAMPLE, told_progress=True)


class Oracle:
    """Answers like the inference service: moves right at full speed; the value is what is told of the progress."""

    def __init__(self, *, refusals: int = 0) -> None:
        self.asked: list[PredictRequest] = []
        self.refusals = refusals

    async def predict(self, request: PredictRequest) -> PredictReply:
        if self.refusals:
            self.refusals -= 1
            raise InferenceQueueFull("full", reason="total_requests")
        self.asked.append(request)
        count = len(request.features)
        horizon = 0 if request.mode is Mode.VALUE else 2
        actions_BHA = np.zeros((count, horizon, 2), np.float32)
        actions_BHA[:, :, 0] = 0.5
        return PredictReply(
            actions_BHA=actions_BHA,
            policy_version=len(self.asked),
            group_size=1,
            queue_us=0,
            compute_us=1,
            share_us=1,
            handles=tuple(f"h{seed}" for seed in request.seeds),
            value=request.progress_B,
        )


@pytest.fixture(scope="module")
def policy():
    return reach_policy(load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl")))


async def played(
    policy, tries: int, *, seats: int, oracle: Oracle, acting: Acting = ACTING, **options
) -> tuple[list[Playing], Actor]:
    spec = SessionSpec(
        tenant_id="alice",
        kind=EnvironmentKind(env_id=REACH, cameras=()),
        seats=seats,
        rules=TryRules(steps_max=5),
    )
    actor, found = Actor(service=oracle, acting=acting, session_id="s"), []  # type: ignore[arg-type]

    async def ended(playing: Playing) -> None:
        found.append(playing)

    async with pool_of() as pool, await pool.open(spec) as session:
        collector = Collector(
            session=session,
            fit=PolicyFit.of(policy, session.schema),
            actor=actor,
            executed=2,
            on_episode=ended,
            wants_final=lambda playing: True,
            **options,
        )
        planned = [Try(index=at, seed=50 + at, group=at, noise=1000 * at) for at in range(tries)]
        await collector.play(deque(planned))
        assert collector.unfinished == []
    return found, actor


async def test_all_seats_decide_in_one_request_and_a_freed_seat_takes_the_next_try(policy) -> None:
    oracle = Oracle()
    found, _ = await played(policy, 5, seats=2, oracle=oracle)
    decisions = [len(request.features) for request in oracle.asked if request.mode is Mode.SAMPLE]
    assert decisions == [2] * 6 + [1] * 3  # three decisions a try; five tries in two seats
    assert [playing.planned.index for playing in found] == [0, 1, 2, 3, 4]
    for playing in found:
        episode = playing.episode(RewardSpec(dense="raw", success=0.0), chunk=2, told_progress=True)
        assert (episode.steps, episode.truncated, [d.executed for d in episode.decisions]) == (5, True, [2, 2, 1])
        assert [decision.progress for decision in episode.decisions] == pytest.approx([0, 0.4, 0.8])
        assert [decision.value for decision in episode.decisions] == pytest.approx([0, 0.4, 0.8])
        assert episode.final_value == 1.0
        assert [decision.handle for decision in episode.decisions] == [
            f"h{playing.planned.noise + at}" for at in range(3)
        ]
        assert episode.env_return == pytest.approx(sum(d.rewards_C.sum() for d in episode.decisions), abs=1e-5)
        assert episode.decisions[-1].rewards_C[1] == 0
        np.testing.assert_allclose(
            episode.decisions[1].state_S[:2] - episode.decisions[0].state_S[:2], [0.1, 0], atol=1e-6
        )
    versions = [[taken.version for taken in playing.taken] for playing in found]
    assert versions[0] == versions[1] == [1, 2, 3], "each decision knows who took it"


async def test_a_full_queue_is_asked_again_and_costs_no_try(policy) -> None:
    found, actor = await played(policy, 2, seats=2, oracle=Oracle(refusals=2))
    assert len(found) == 2
    assert max(actor.statistics.latency_s) >= 0.1, "the wait is part of the latency"


async def test_steps_taken_one_by_one_decide_as_seldom_as_whole_chunks(policy) -> None:
    oracle, moves = Oracle(), []
    found, _ = await played(policy, 1, seats=1, oracle=oracle, stride=1, on_move=lambda *move: moves.append(move))
    assert len([request for request in oracle.asked if request.mode is Mode.SAMPLE]) == 3
    assert [(actions.shape, result.executed) for _, _, actions, result in moves] == [((1, 2), 1)] * 5
    assert found[0].steps == 5


async def test_what_the_platform_owes_is_asked_for_at_no_price(policy) -> None:
    oracle = Oracle()
    actor = Actor(service=oracle, acting=ACTING, session_id="s", owed=Debt(3))  # type: ignore[arg-type]
    for _ in range(3):
        await actor.decide(
            Asked(features=[observation(1)] * 2, states=[None] * 2, seeds=[1, 2], passed_B=np.zeros(2, np.float32))
        )
    assert [request.unbilled for request in oracle.asked] == ["environment_lost", "environment_lost", None]


async def test_a_critic_that_counts_time_needs_a_limit(policy, monkeypatch) -> None:
    monkeypatch.setattr(Playing, "passed", property(lambda self: None))
    with pytest.raises(NoStepLimit, match="episode_progress"):
        await played(policy, 1, seats=1, oracle=Oracle())


@given(
    steps=st.integers(0, 500),
    lost=st.integers(0, 500),
    answered_us=st.integers(0, 10**9),
    hanging_us=st.integers(0, 10**9),
)
def test_use_is_split_without_losing_a_step_or_a_microsecond(
    steps: int, lost: int, answered_us: int, hanging_us: int
) -> None:
    lost = min(lost, steps)
    session = SimpleNamespace(steps=steps, lost=None, busy=SimpleNamespace(calls_us=answered_us))
    use = SessionUse(session=session)  # type: ignore[arg-type]
    use.called()
    session.busy.calls_us += hanging_us
    session.lost = EnvironmentLost(LostReason.DEADLINE, "a step took too long")
    kept, wasted = use.split(lost)
    assert kept + wasted == Used(steps=steps, busy_us=answered_us + hanging_us)
    assert wasted.busy_us >= hanging_us, "nobody pays for a call that was never answered"
    if steps and not lost:
        assert kept.busy_us == answered_us
    if steps == lost:
        assert kept.busy_us == 0, "nothing came of it"
