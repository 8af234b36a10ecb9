"""Busy share over a trailing window, by hand."""

from gpu_runtime.services.utilization import Utilization

S = 1_000_000


def test_a_young_service_is_measured_over_its_own_life() -> None:
    use = Utilization(now_us=100 * S, window_us=60 * S)
    use.begin(101 * S)
    use.end(103 * S, group_size=2)
    assert use.busy_share(104 * S) == 0.5
    assert use.window_us(104 * S) == 4 * S


def test_a_step_counts_only_as_far_as_it_lies_in_the_window() -> None:
    use = Utilization(now_us=0, window_us=10 * S)
    use.begin(5 * S)
    use.end(15 * S, group_size=1)
    assert use.busy_share(15 * S) == 1.0
    assert use.busy_share(20 * S) == 0.5
    assert use.busy_share(25 * S) == 0.0


def test_a_step_that_is_still_running_counts_up_to_now() -> None:
    use = Utilization(now_us=0, window_us=10 * S)
    use.begin(8 * S)
    assert use.busy
    assert use.busy_share(10 * S) == 0.2
    assert use.busy_share(40 * S) == 1.0


def test_the_mean_group_size_forgets_with_the_window_and_is_none_when_nothing_ran() -> None:
    use = Utilization(now_us=0, window_us=10 * S)
    assert use.group_size_mean(S) is None
    for begin, size in ((1, 1), (2, 4)):
        use.begin(begin * S)
        use.end((begin + 1) * S, group_size=size)
    assert use.group_size_mean(4 * S) == 2.5
    assert use.group_size_mean(12 * S) == 4
    assert use.group_size_mean(13 * S) is None
