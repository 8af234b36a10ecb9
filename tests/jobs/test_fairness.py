"""Fairness: what a tenant was given against its part by weight. Nothing of others leaves it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from jobs.selectors.fairness import Fairness, fairness, fairness_of
from tests.jobs.test_utilization import span
from tests.support.story import Person

TENANTS = ("a", "b", "c")
IN_A_BUCKET = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)  # five minutes before, ten seconds are left of a bucket
Reckoned = Callable[[dict[int, dict[str, int]], dict[str, int], str], Fairness]
worlds = st.tuples(
    st.dictionaries(
        st.integers(0, 9), st.dictionaries(st.sampled_from(TENANTS), st.integers(0, 15_000_000)), max_size=8
    ),
    st.fixed_dictionaries({name: st.integers(1, 5) for name in TENANTS}),
)


def violations(reckon: Reckoned, shares: dict[int, dict[str, int]], weights: dict[str, int]) -> list[str]:
    """What must hold of everybody's fairness together."""
    own = {name: reckon(shares, weights, name) for name in TENANTS}
    total = sum(us for parts in shares.values() for us in parts.values())
    found = []
    if sum(one.received_us for one in own.values()) != total:
        found.append("received is not all that was given")
    if abs(sum(one.ahead_s for one in own.values())) > 1e-6 * max(1, total / 1e6):
        found.append("what one is ahead, nobody is behind")
    for name in TENANTS:
        alone = all(set(_served(parts)) == {name} for parts in shares.values() if name in _served(parts))
        if alone and abs(own[name].ahead_s) > 1e-9:
            found.append("alone, and not given exactly its part")
    return found


def _served(parts: dict[str, int]) -> dict[str, int]:
    return {name: us for name, us in parts.items() if us}


@given(worlds)
def test_over_everybody_the_differences_are_zero_and_whoever_is_alone_has_its_part(world) -> None:
    assert violations(fairness_of, *world) == []


def test_a_part_that_counts_whoever_is_not_served_is_caught() -> None:
    def wrong(shares: dict[int, dict[str, int]], weights: dict[str, int], own: str) -> Fairness:
        right = fairness_of(shares, weights, own)
        return replace(right, fair_us=right.received_us * weights[own] / sum(weights.values()))

    assert violations(wrong, {0: {"a": 10}, 1: {"a": 5, "b": 5}}, dict.fromkeys(TENANTS, 1))


def test_a_double_weight_has_a_double_part() -> None:
    one = fairness_of({0: {"a": 2_000_000, "b": 1_000_000}}, {"a": 2}, "a")
    assert one.ahead_s == 0
    assert (one.buckets, one.shared_buckets) == (1, 1)
    assert fairness_of({0: {"a": 2_000_000, "b": 1_000_000}}, {}, "b").ahead_s == pytest.approx(-0.5)


@pytest.mark.django_db
@time_machine.travel(IN_A_BUCKET, tick=False)
def test_one_is_told_of_oneself_by_the_weights_of_the_tenants(alice: Person, charlie: Person) -> None:
    span(alice, "training", busy_s=3)
    span(charlie, "training", busy_s=1)
    alice.tenant.weight = 3
    alice.tenant.save()
    assert fairness(alice.tenant, "training").ahead_s == pytest.approx(0)
    assert fairness(charlie.tenant, "training").ahead_s == pytest.approx(0)
    assert fairness(alice.tenant, "inference") == Fairness(received_us=0, fair_us=0.0, buckets=0, shared_buckets=0)
