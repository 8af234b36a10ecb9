"""When a batch fires, who leads it, who rides, and what it costs to decide."""

import pytest

from gpu_runtime.scheduler.backlog import Request
from gpu_runtime.scheduler.batch_former import MISFITS_MAX, BatchFormer
from gpu_runtime.scheduler.errors import InvalidRequest
from gpu_runtime.scheduler.fair_share import FairShare


def make_former(**knobs: int) -> BatchFormer[str]:
    return BatchFormer(**{"batch_limit_tokens": 10, "window_us": 1_000, "wait_us": 5} | knobs)


def offer(former, request_id, *, tokens=1, group_key="x", order=(0,), now_us=0) -> None:
    """The tenant is the first letter of the request id."""
    former.offer(
        Request(
            request_id=request_id,
            tenant_id=request_id[0],
            group_key=group_key,
            tokens=tokens,
            order=order,
            fire_at_us=former.fire_at_us(now_us),
        )
    )


def take(former, now_us=1_000_000) -> list[str]:
    batch = former.take(now_us=now_us)
    return [pick.request.request_id for pick in batch.picks] if batch else []


def test_a_batch_waits_t_for_company_and_not_longer():
    former = make_former()
    offer(former, "a1", now_us=100)
    offer(former, "b1", now_us=103)
    assert take(former, now_us=104) == []
    assert former.next_fire_us() == 105
    assert take(former, now_us=105) == ["a1", "b1"]


def test_a_full_batch_does_not_wait():
    former = make_former()
    offer(former, "a1", tokens=6)
    offer(former, "b1", tokens=4)
    assert take(former, now_us=0) == ["a1", "b1"]


def test_what_arrives_while_the_device_is_busy_has_gathered_already():
    former = make_former()
    offer(former, "a1")
    take(former)
    offer(former, "b1", now_us=2_000_000)
    former.settle("a1", charge_us=10)
    assert take(former, now_us=2_000_000) == ["b1"]


def test_the_clock_of_the_longest_waiting_request_counts_whatever_its_class():
    former = make_former()
    former.charge("a", 50)
    offer(former, "a1", group_key="x", now_us=0)
    offer(former, "b1", group_key="y", now_us=4)
    assert take(former, now_us=5) == ["b1"], "the least served leads, though it came later"


def test_a_charge_or_a_weight_moves_a_tenant_that_waits_already():
    former = make_former(batch_limit_tokens=1)
    offer(former, "a1")
    offer(former, "b1")
    former.charge("a", 50)
    assert take(former) == ["b1"]
    offer(former, "c1")
    offer(former, "c2", order=(1,))
    former.charge("c", 40)
    assert take(former) == ["c1"]
    former.settle("c1", charge_us=20)
    assert former.fair.counter_us("c") == 60
    assert take(former) == ["a1"]


def test_an_estimate_that_is_taken_back_or_weighs_less_moves_the_tenant_forward():
    for relief in (lambda former: former.discard("a1"), lambda former: former.set_weight("a", 2)):
        former = make_former()
        former.charge("b", 6)
        offer(former, "a1", tokens=10)
        offer(former, "a2", tokens=10, order=(1,))
        offer(former, "b1", tokens=10)
        assert take(former) == ["a1"]  # a is at 10 now, by estimate
        relief(former)
        assert take(former) == ["a2"]


def test_withdrawing_one_request_leaves_the_tenants_others():
    former = make_former()
    offer(former, "a1")
    offer(former, "a2", order=(1,))
    former.discard("a1")
    assert take(former) == ["a2"]


def test_what_has_run_does_not_count_towards_a_full_batch():
    former = make_former()
    offer(former, "a1", tokens=6)
    assert take(former) == ["a1"]
    former.settle("a1", charge_us=10)
    offer(former, "b1", tokens=5, now_us=2_000_000)
    assert take(former, now_us=2_000_001) == []


def test_a_request_offered_anew_waits_anew_in_its_new_place():
    former = make_former(batch_limit_tokens=100)
    for request_id, order in (("a0", (0,)), ("a1", (1,)), ("a2", (2,))):
        offer(former, request_id, order=order)
    for request_id in ("a0", "a1", "a2"):
        former.discard(request_id)
    for request_id, order in (("a0", (0,)), ("a1", (3,)), ("a2", (2,))):
        offer(former, request_id, order=order, now_us=100)
    assert take(former, now_us=101) == []
    assert take(former, now_us=105) == ["a0", "a2", "a1"]


def test_a_request_withdrawn_from_the_middle_and_offered_later_goes_last():
    former = make_former()
    for request_id, order in (("a0", (0,)), ("a1", (1,)), ("a2", (2,))):
        offer(former, request_id, order=order)
    former.discard("a1")
    offer(former, "a1", order=(3,))
    assert take(former) == ["a0", "a2", "a1"]


def test_the_leaders_first_request_fixes_the_class():
    former = make_former()
    offer(former, "a1", group_key="x", order=(2,))
    offer(former, "a2", group_key="y", order=(1,))
    offer(former, "b1", group_key="x")
    offer(former, "c1", group_key="y")
    assert take(former) == ["a2", "c1"]
    assert take(former) == ["b1", "a1"]


def test_within_a_tenant_the_order_counts_not_the_arrival():
    former = make_former(batch_limit_tokens=1)
    for request_id, order in (("a1", (0, 5, 1)), ("a2", (-9, 7, 2)), ("a3", (0, 4, 3))):
        offer(former, request_id, order=order)
    assert [take(former)[0] for _ in range(3)] == ["a2", "a3", "a1"]


def test_riders_alternate_by_tentative_cost():
    former = make_former(batch_limit_tokens=6)
    for at in range(4):
        offer(former, f"a{at}", order=(at,))
        offer(former, f"b{at}", order=(at,))
    assert take(former) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_tenant_beyond_the_window_does_not_ride():
    former = make_former(window_us=100)
    former.charge("b", 101)
    former.charge("c", 100)
    for request_id in ("a1", "b1", "c1"):
        offer(former, request_id)
    assert take(former) == ["a1", "c1"]


def test_with_no_window_only_equals_ride():
    former = make_former(window_us=0)
    offer(former, "a1")
    offer(former, "a2", order=(1,))
    offer(former, "b1")
    assert take(former) == ["a1", "b1"]


def test_a_rider_too_large_for_the_rest_is_passed_over_and_keeps_its_place():
    former = make_former()
    offer(former, "a1", tokens=6)
    offer(former, "b1", tokens=5)
    offer(former, "c1", tokens=4)
    assert take(former) == ["a1", "c1"]
    assert take(former) == ["b1"]


def test_only_so_many_riders_are_passed_over():
    former = make_former()
    offer(former, "A1", tokens=6)
    for at in range(MISFITS_MAX):
        offer(former, f"{chr(ord('a') + at)}1", tokens=5)
    offer(former, "z1", tokens=4)
    assert take(former) == ["A1"]


def test_a_request_larger_than_the_limit_runs_alone():
    former = make_former()
    offer(former, "a1", tokens=11)
    offer(former, "b1")
    assert take(former) == ["a1"]
    assert take(former) == ["b1"]


def test_a_discarded_request_costs_nothing_whether_it_waited_or_ran():
    former = make_former()
    offer(former, "a1")
    offer(former, "b1")
    former.discard("b1")
    assert take(former) == ["a1"]
    former.discard("a1")
    former.discard("a1")
    assert not former.busy
    assert former.fair.tag("a").counter_us == former.fair.counter_us("a") == 0


def test_a_request_offered_again_after_it_was_taken_back_keeps_its_order():
    former = make_former(batch_limit_tokens=1)
    offer(former, "a1", order=(1,))
    offer(former, "a2", order=(2,))
    assert take(former) == ["a1"]
    former.discard("a1")
    offer(former, "a1", order=(1,))
    assert take(former) == ["a1"]
    assert take(former) == ["a2"]
    assert take(former) == []


def test_a_decision_does_not_look_at_all_tenants(monkeypatch):
    """4000 backlogged tenants in 4 classes: the work of a decision depends on its picks and on the classes only."""
    former = make_former(batch_limit_tokens=8)
    for at in range(4_000):
        for count in range(2):
            former.offer(
                Request(
                    request_id=f"{at}-{count}",
                    tenant_id=f"t{at:04d}",
                    group_key=f"base-{at % 4}",
                    tokens=1,
                    order=(count,),
                    fire_at_us=0,
                )
            )
    looks = []
    tag = FairShare.tag
    monkeypatch.setattr(FairShare, "tag", lambda self, tenant_id: looks.append(tenant_id) or tag(self, tenant_id))
    for _ in range(100):
        for pick in former.take(now_us=0).picks:
            former.settle(pick.request.request_id, charge_us=100)
    assert len(looks) <= 100 * (3 * 8 + 4)


@pytest.mark.parametrize("knobs", [{"batch_limit_tokens": 0}, {"window_us": -1}, {"wait_us": -1}])
def test_impossible_knobs_are_refused_by_name(knobs):
    with pytest.raises(InvalidRequest, match=next(iter(knobs))):
        make_former(**knobs)
