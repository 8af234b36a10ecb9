"""The inference queue: continuous, fair, in order, bounded; and its batch limit is where the curve bends."""

import pytest

from gpu_runtime.scheduler.errors import DuplicateRequest, InferenceQueueFull, InvalidRequest, UnknownRequest
from gpu_runtime.scheduler.inference_queue import InferenceLimits, InferenceQueue
from gpu_runtime.scheduler.knee import Knee, KneeSettings
from tests.support.inference_world import Client, Curve, FifoQueue, InferenceWorld, percentile

TINY_CURVE = Curve(points=((1, 1e3), (2, 1.61e3), (4, 2.52e3), (8, 4.34e3), (16, 8.14e3), (32, 16.9e3)))
"""A 2M-parameter base on a CPU, measured: samples and milliseconds over those of one sample."""


def make_queue(limits: InferenceLimits | None = None, **knobs: int) -> InferenceQueue:
    return InferenceQueue(limits or InferenceLimits(), **{"batch_limit_tokens": 10, "window_us": 1_000} | knobs)


def arrive(queue: InferenceQueue, request_id: str, *, now_us: int = 0, session: str | None = None, **fields) -> None:
    """The tenant is the first letter of the request id, the session the second unless it is named."""
    defaults = {"group_key": "base", "tokens": 1}
    queue.arrive(
        now_us=now_us,
        request_id=request_id,
        tenant_id=request_id[0],
        session_id=session or request_id[1],
        **defaults | fields,
    )


def take(queue: InferenceQueue, now_us: int = 0) -> list[str]:
    batch = queue.next_batch(now_us)
    return [request.request_id for request in batch.requests] if batch else []


def run(queue: InferenceQueue, now_us: int = 0, charge_us: int = 10) -> list[str]:
    taken = take(queue, now_us)
    for request_id in taken:
        queue.complete(request_id, charge_us=charge_us)
    return taken


# --- the continuous rule --------------------------------------------------------------------------------------------


def test_an_idle_device_starts_at_once_with_what_is_there():
    queue = make_queue()
    arrive(queue, "a1")
    assert take(queue) == ["a1"]


def test_a_busy_device_gathers_and_then_takes_everything_up_to_the_limit():
    queue = make_queue(batch_limit_tokens=3)
    arrive(queue, "a1")
    assert take(queue) == ["a1"]
    for request_id in ("a2", "b1", "c1", "d1"):
        arrive(queue, request_id, now_us=5)
    assert take(queue, now_us=5) == []
    assert queue.next_wakeup_us(5) is None, "only the end of the batch changes anything"
    queue.complete("a1", charge_us=10)
    assert len(take(queue, now_us=9)) == 3


def test_a_batch_is_over_when_its_last_request_is():
    queue = make_queue()
    for request_id in ("a1", "b1"):
        arrive(queue, request_id)
    take(queue)
    arrive(queue, "c1")
    queue.complete("a1", charge_us=1)
    assert take(queue) == []
    queue.complete("b1", charge_us=1)
    assert take(queue) == ["c1"]


def test_patience_and_limit_remain_settings():
    queue = make_queue(wait_us=100, batch_limit_tokens=2)
    arrive(queue, "a1", now_us=0)
    assert take(queue, now_us=99) == []
    assert queue.next_wakeup_us(50) == 100
    arrive(queue, "b1", now_us=99)
    assert take(queue, now_us=99) == ["a1", "b1"], "full before its time"


def test_a_request_larger_than_the_limit_runs_alone():
    queue = make_queue()
    arrive(queue, "a1", tokens=11)
    arrive(queue, "b1")
    assert [run(queue), run(queue)] == [["a1"], ["b1"]]


def test_a_new_limit_counts_from_the_next_batch_on_and_for_its_base_only():
    queue = make_queue(batch_limit_tokens=1)
    for request_id, group_key in (("a1", "x"), ("b1", "x"), ("c1", "x"), ("d1", "y"), ("e1", "y")):
        arrive(queue, request_id, group_key=group_key)
    assert run(queue) == ["a1"]
    queue.set_batch_limit("x", 10)
    assert [sorted(run(queue)), run(queue), run(queue)] == [["b1", "c1"], ["d1"], ["e1"]]
    assert (queue.batch_limit_tokens("x"), queue.batch_limit_tokens("y")) == (10, 1)
    with pytest.raises(InvalidRequest, match="batch_limit_tokens = 0"):
        queue.set_batch_limit("x", 0)


def test_only_one_base_in_a_batch():
    queue = make_queue()
    arrive(queue, "a1", group_key="x")
    arrive(queue, "b1", group_key="y")
    arrive(queue, "c1", group_key="x")
    assert [run(queue), run(queue)] == [["a1", "c1"], ["b1"]]


# --- sessions -------------------------------------------------------------------------------------------------------


def test_requests_of_one_session_run_one_after_the_other_in_order():
    queue = make_queue()
    for request_id in ("a1x", "a1y", "a1z"):
        arrive(queue, request_id)
    assert [run(queue) for _ in range(4)] == [["a1x"], ["a1y"], ["a1z"], []]


def test_sessions_of_one_tenant_run_together_and_equal_names_of_two_tenants_are_two_sessions():
    queue = make_queue()
    for request_id in ("a1", "a2", "b1"):
        arrive(queue, request_id)
    assert sorted(run(queue)) == ["a1", "a2", "b1"]


def test_a_withdrawn_or_expired_request_lets_the_next_of_its_session_pass():
    queue = make_queue()
    arrive(queue, "a1x", deadline_us=5)
    arrive(queue, "a1y")
    arrive(queue, "a1z")
    assert queue.withdraw("a1y")
    assert queue.expire(5) == ("a1x",)
    assert run(queue, now_us=5) == ["a1z"]


# --- deadlines ------------------------------------------------------------------------------------------------------


def test_a_request_expires_while_it_waits_and_not_once_it_runs():
    queue = make_queue(batch_limit_tokens=1)
    arrive(queue, "a1", deadline_us=10)
    arrive(queue, "b1", deadline_us=10)
    assert queue.next_wakeup_us(0) == 0
    assert take(queue) == ["a1"]
    assert queue.next_wakeup_us(0) == 10
    assert queue.expire(9) == ()
    assert queue.expire(10) == ("b1",)
    queue.complete("a1", charge_us=1)
    assert (queue.depth(), queue.next_wakeup_us(11)) == (0, None)


def test_what_runs_can_no_longer_be_withdrawn():
    queue = make_queue()
    arrive(queue, "a1")
    take(queue)
    assert not queue.withdraw("a1")
    assert not queue.withdraw("nobody")


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"tokens": 0}, "tokens = 0"), ({"deadline_us": 7}, r"deadline_us = 7 .* after now \(7\)")],
)
def test_a_senseless_request_is_refused_by_name(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        arrive(make_queue(), "a1", now_us=7, **fields)


def test_nothing_runs_twice_and_nothing_unknown_completes():
    queue = make_queue()
    arrive(queue, "a1")
    with pytest.raises(DuplicateRequest):
        arrive(queue, "a1", session="other")
    with pytest.raises(UnknownRequest):
        queue.complete("a1", charge_us=1)
    run(queue)
    with pytest.raises(UnknownRequest):
        queue.complete("a1", charge_us=1)
    arrive(queue, "a1")


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_each_bound_refuses_by_its_name_and_an_answer_makes_room():
    limits = InferenceLimits(per_session=2, per_tenant=3, total=4, guaranteed_per_tenant=1)
    queue = make_queue(limits)

    def reason(request_id: str) -> str:
        with pytest.raises(InferenceQueueFull) as refusal:
            arrive(queue, request_id)
        return refusal.value.reason

    for request_id in ("a1x", "a1y", "a2x"):
        arrive(queue, request_id)
    assert [reason("a1z"), reason("a3x")] == ["session_requests", "tenant_requests"]
    arrive(queue, "b1x")
    assert reason("b2x") == "total_requests"
    assert sorted(run(queue)) == ["a1x", "a2x", "b1x"]
    arrive(queue, "b2x")


def test_a_queue_filled_by_a_flood_still_takes_the_few_requests_of_a_light_tenant():
    queue = make_queue(InferenceLimits(per_tenant=50, total=50, guaranteed_per_tenant=2))
    for at in range(50):
        arrive(queue, f"a{at}", session=str(at))
    arrive(queue, "b1")
    arrive(queue, "b2")
    with pytest.raises(InferenceQueueFull, match="as many as the service takes"):
        arrive(queue, "b3")


@pytest.mark.parametrize("field", ["per_session", "per_tenant", "total", "guaranteed_per_tenant"])
def test_a_bound_of_zero_is_refused(field):
    with pytest.raises(InvalidRequest, match=f"{field} = 0"):
        InferenceLimits(**{field: 0})


# --- fairness -------------------------------------------------------------------------------------------------------

FLOOD = (Client(tenant_id="flood", sessions=256), Client(tenant_id="light", sessions=2, think_us=20_000))


def flooded(queue) -> InferenceWorld:
    return InferenceWorld(queue=queue, curve=TINY_CURVE, clients=FLOOD).run(3_000_000)


def test_a_flooding_tenant_cannot_starve_a_light_one():
    world = flooded(make_queue(batch_limit_tokens=16, window_us=8_000))
    longest_batch_us = TINY_CURVE.busy_us(16)
    assert len(world.waits_us["light"]) > 150
    assert max(world.waits_us["light"]) <= 2 * longest_batch_us
    assert world.idle_with_backlog_us == 0


def test_the_test_above_would_notice_a_queue_without_fairness():
    world = flooded(FifoQueue(batch_limit_tokens=16))
    assert percentile(world.waits_us["light"], 0.5) > 10 * TINY_CURVE.busy_us(16)


def test_weights_are_shares_among_tenants_that_always_want_more():
    queue = make_queue(batch_limit_tokens=16, window_us=8_000)
    queue.set_weight("heavy", 3)
    clients = (Client(tenant_id="heavy", sessions=64), Client(tenant_id="plain", sessions=64))
    world = InferenceWorld(queue=queue, curve=TINY_CURVE, clients=clients).run(5_000_000)
    answered = {tenant: len(waits) for tenant, waits in world.waits_us.items()}
    assert answered["heavy"] / answered["plain"] == pytest.approx(3, rel=0.03)


# --- the knee -------------------------------------------------------------------------------------------------------

SETTINGS = KneeSettings(floor_tokens=1, ceiling_tokens=64)


def learned(curve: Curve, settings: KneeSettings = SETTINGS, sessions: int = 100) -> Knee:
    """What 100 busy environments of one tenant teach in 1.5 seconds."""
    knee = Knee(settings)
    queue = make_queue(batch_limit_tokens=knee.limit_tokens)
    client = Client(tenant_id="a", sessions=sessions)
    InferenceWorld(queue=queue, curve=curve, clients=[client], knee=knee).run(1_500_000)
    return knee


def test_the_limit_climbs_to_the_bend_of_the_measured_curve_and_stays():
    knee = learned(TINY_CURVE)
    assert knee.knee_tokens == 16
    assert knee.limit_tokens == 16, "32 was tried, and is no faster"
    assert {point.tokens for point in knee.curve()} == {2, 4, 8, 16, 32}


def test_where_bigger_batches_are_no_slower_one_octave_more_is_taken_along():
    gpu = Curve(points=((1, 1_000.0), (8, 1_000.0), (16, 2_000.0), (32, 4_000.0)))
    knee = learned(gpu)
    assert (knee.knee_tokens, knee.limit_tokens) == (8, 16)


def test_the_bounds_hold_whatever_the_curve():
    flat = Curve(points=((1, 1_000.0), (2, 1_000.0)))
    steep = Curve(points=((1, 1_000.0), (2, 4_000.0)))
    settings = KneeSettings(floor_tokens=2, ceiling_tokens=24)
    assert learned(flat, settings).limit_tokens == 24
    assert learned(steep, settings).limit_tokens == 2


def test_a_device_that_became_slow_with_big_batches_gets_smaller_ones():
    knee = learned(TINY_CURVE)
    for _ in range(40):
        knee.observe(16, 40_000)
    assert knee.limit_tokens == 8


def test_an_octave_that_had_a_bad_day_is_tried_again():
    knee = Knee(KneeSettings(floor_tokens=1, ceiling_tokens=64, reprobe_batches=50))
    for tokens, busy_us in ((1, 1_000), (2, 9_000)):
        for _ in range(5):
            knee.observe(tokens, busy_us)
    assert knee.limit_tokens == 1
    for _ in range(50):
        knee.observe(1, 1_000)
    assert knee.limit_tokens == 2
    for _ in range(20):
        knee.observe(2, 1_100)
    assert knee.knee_tokens == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"floor_tokens": 0}, "floor_tokens"),
        ({"floor_tokens": 9, "ceiling_tokens": 8}, "ceiling_tokens"),
        ({"tolerance_permille": 1_000}, "tolerance_permille"),
        ({"batches_min": 0}, "batches_min"),
        ({"reprobe_batches": 0}, "reprobe_batches"),
    ],
)
def test_settings_of_the_knee_that_make_no_sense_are_refused_by_name(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        KneeSettings(**fields)
