"""Counters of service over weight."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.scheduler.costs import CostModel
from gpu_runtime.scheduler.errors import InvalidRequest
from gpu_runtime.scheduler.fair_share import FairShare


@given(charges=st.lists(st.integers(0, 10**6)), weight=st.integers(1, 1000))
def test_the_rounding_remainder_is_carried_so_the_counter_is_exact_for_ever(charges, weight):
    fair = FairShare()
    fair.set_weight("a", weight)
    for charge_us in charges:
        fair.charge("a", charge_us)
    assert fair.counter_us("a") == sum(charges) // weight


@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 50)), min_size=1))
def test_a_change_of_weight_loses_less_than_a_microsecond(changes):
    fair, exact = FairShare(), Fraction(0)
    for charge_us, weight in changes:
        fair.set_weight("a", weight)
        fair.charge("a", charge_us)
        exact += Fraction(charge_us, weight)
    assert 0 <= exact - fair.counter_us("a") < 1 + len(changes)


def test_a_tenant_that_comes_back_enters_at_v_and_keeps_its_debt():
    fair = FairShare()
    fair.charge("leader", 500)
    fair.charge("indebted", 900)
    fair.lead("leader")
    for tenant_id in ("idle", "indebted"):
        fair.enter(tenant_id)
    assert fair.virtual_us == 500
    assert fair.counter_us("idle") == 500
    assert fair.counter_us("indebted") == 900


def test_a_lift_ends_exactly_at_v():
    fair = FairShare()
    fair.set_weight("a", 3)
    fair.charge("a", 2)
    fair.charge("leader", 500)
    fair.lead("leader")
    fair.enter("a")
    fair.charge("a", 1)
    assert fair.counter_us("a") == 500, "the fraction from before the lift is gone"


def test_v_does_not_fall_when_the_leaders_service_is_taken_back():
    fair = FairShare()
    fair.hold("a", 300)
    fair.lead("a")
    fair.unhold("a", 300)
    assert fair.lead("a") == 0
    assert fair.virtual_us == 300


def test_service_in_flight_counts_as_an_estimate_until_it_is_measured():
    fair = FairShare()
    fair.set_weight("a", 2)
    fair.hold("a", 101)
    assert fair.tag("a").counter_us == 51
    fair.unhold("a", 101)
    fair.charge("a", 80)
    assert fair.tag("a").counter_us == fair.counter_us("a") == 40


def test_a_tenant_whose_service_is_in_flight_is_not_lifted_twice():
    fair = FairShare()
    fair.charge("leader", 500)
    fair.hold("a", 600)
    fair.lead("leader")
    fair.enter("a")
    assert fair.counter_us("a") == 0


def test_equal_counters_are_served_in_the_order_of_longest_ago():
    fair = FairShare()
    for tenant_id in ("b", "a"):
        fair.hold(tenant_id, 10)
    assert min(fair.tag("a"), fair.tag("b")).tenant_id == "b"
    assert min(fair.tag("never"), fair.tag("also-never")).tenant_id == "also-never"


def test_counters_survive_a_restart_but_estimates_of_lost_leases_do_not():
    fair = FairShare()
    fair.set_weight("a", 3)
    fair.charge("a", 100)
    fair.lead("a")
    fair.hold("a", 1_000)
    copy = FairShare.load(json.loads(json.dumps(fair.dump())))
    assert (copy.counter_us("a"), copy.weight("a"), copy.virtual_us) == (33, 3, fair.virtual_us)
    assert copy.tag("a").counter_us == 33
    copy.charge("a", 2)
    assert copy.counter_us("a") == 34  # the carried third was kept


@pytest.mark.parametrize("weight", [0, -1])
def test_a_weight_below_one_is_refused(weight):
    with pytest.raises(InvalidRequest, match=f"weight = {weight}"):
        FairShare().set_weight("a", weight)


def test_estimates_follow_the_measurements_of_the_tenant():
    costs = CostModel()
    assert costs.estimate_us("a", 100) == 100
    costs.observe("a", 100, 5_000)
    assert costs.estimate_us("a", 100) == pytest.approx(5_000, rel=0.01)
    for _ in range(60):
        costs.observe("a", 100, 1_000)
    assert costs.estimate_us("a", 100) == pytest.approx(1_000, rel=0.02)
    assert costs.estimate_us("new", 100) == pytest.approx(1_000, rel=0.1)


def test_an_estimate_is_never_zero():
    costs = CostModel()
    costs.observe("a", 1_000_000, 0)
    assert costs.estimate_us("a", 1) == 1
