"""Measured time is split exactly, in integers."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runtime.scheduler.accounting import MeasuredStep, attribute, split_exactly
from gpu_runtime.scheduler.errors import InvalidRequest
from gpu_runtime.scheduler.invariants import check_accounting

names = st.text(alphabet="abcdefgh", min_size=1, max_size=3)
weights = st.dictionaries(names, st.integers(0, 10**6), min_size=1).filter(lambda parts: sum(parts.values()) > 0)
microseconds = st.integers(0, 10**12)


@given(total_us=microseconds, weights=weights)
def test_the_parts_sum_to_the_whole_and_each_is_within_one_of_its_real_share(total_us, weights):
    parts = split_exactly(total_us, weights)
    assert sum(parts.values()) == total_us
    assert parts.keys() == weights.keys()
    for name, part_us in parts.items():
        assert abs(part_us - Fraction(total_us * weights[name], sum(weights.values()))) < 1


@given(total_us=microseconds, weights=weights)
def test_more_weight_never_gets_less(total_us, weights):
    parts = split_exactly(total_us, weights)
    by_weight = sorted(parts, key=lambda name: weights[name])
    assert all(parts[low] <= parts[high] for low, high in pairwise(by_weight) if weights[low] < weights[high])


def test_the_remainder_goes_to_the_largest_fractions_then_to_the_earlier_key():
    assert split_exactly(100, {"a": 1, "b": 1, "c": 1}) == {"a": 34, "b": 33, "c": 33}
    assert split_exactly(10, {"small": 1, "large": 2}) == {"small": 3, "large": 7}


def test_who_has_no_weight_pays_nothing():
    assert split_exactly(7, {"idle": 0, "busy": 3}) == {"idle": 0, "busy": 7}


@pytest.mark.parametrize(
    ("total_us", "weights", "message"),
    [
        (10, {}, "weights"),
        (10, {"a": 0}, "at least one above zero"),
        (10, {"a": -1, "b": 2}, r"weights\['a'\] = -1"),
        (-1, {"a": 1}, "total_us = -1"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused_by_name(total_us, weights, message):
    with pytest.raises(InvalidRequest, match=message):
        split_exactly(total_us, weights)


@given(tokens=weights, private=st.dictionaries(names, microseconds), shared_us=microseconds, overhead_us=microseconds)
def test_shares_and_overhead_are_the_measured_time_always(tokens, private, shared_us, overhead_us):
    private_us = {name: private.get(name, 0) for name in tokens}
    busy_us = shared_us + sum(private_us.values()) + overhead_us
    step = MeasuredStep(busy_us=busy_us, shared_us=shared_us, private_us=private_us)
    attribution = attribute(step, tokens)
    check_accounting(step, attribution)
    assert attribution.overhead_us == overhead_us
    assert all(attribution.shares[name] >= private_us[name] for name in tokens)


def test_private_time_is_paid_by_its_owner_alone():
    step = MeasuredStep(busy_us=130, shared_us=100, private_us={"b": 20})
    attribution = attribute(step, {"a": 3, "b": 1})
    assert attribution.shares == {"a": 75, "b": 45}
    assert attribution.overhead_us == 10


def test_private_time_of_a_stranger_is_refused():
    with pytest.raises(InvalidRequest, match="stranger"):
        attribute(MeasuredStep(busy_us=9, shared_us=1, private_us={"stranger": 1}), {"a": 1})


@pytest.mark.parametrize(
    "measured",
    [
        {"busy_us": 9, "shared_us": 10, "private_us": {}},
        {"busy_us": 15, "shared_us": 10, "private_us": {"a": 6}},
        {"busy_us": 15, "shared_us": -1, "private_us": {}},
        {"busy_us": 15, "shared_us": 1, "private_us": {"a": -1}},
    ],
)
def test_a_step_whose_parts_exceed_the_whole_is_refused(measured):
    with pytest.raises(InvalidRequest):
        MeasuredStep(**measured)
