"""Staleness is bounded before a rollout starts and again before it is used."""

import pytest

from gpu_runtime.scheduler.errors import InvalidRequest, StalenessBound
from gpu_runtime.scheduler.staleness import Freshness, admit


def test_slack_is_the_updates_that_may_still_come_first():
    freshness = Freshness(behaviour_version=10, max_staleness=3)
    assert [freshness.slack(version) for version in (10, 13, 14)] == [3, 0, -1]


@pytest.mark.parametrize(("ahead", "admitted"), [(0, True), (1, True), (2, False)])
def test_admission_counts_the_updates_ahead(ahead, admitted):
    freshness = Freshness(behaviour_version=4, max_staleness=2)
    if admitted:
        admit(freshness, policy_version=5, updates_ahead=ahead)
    else:
        with pytest.raises(StalenessBound, match="would be 3 updates old behind 2 partitions at policy version 5"):
            admit(freshness, policy_version=5, updates_ahead=ahead)


@pytest.mark.parametrize("field", ["behaviour_version", "max_staleness"])
def test_negative_bounds_are_refused_by_name(field):
    with pytest.raises(InvalidRequest, match=f"{field} = -1"):
        Freshness(**{"behaviour_version": 0, "max_staleness": 0, field: -1})
