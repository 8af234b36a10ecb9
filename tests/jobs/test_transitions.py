"""The table of states is the only way between them, for any sequence of wishes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import Job
from jobs.services.transition import job_transition
from jobs.states import LIVE, TERMINAL, TRANSITIONS, JobState, may_become
from tenants.scope import platform_scope
from tests.support.jobs import events_of, make_job, reread, states_of
from tests.support.story import Person


def test_every_state_is_in_the_table_and_terminal_states_lead_nowhere() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert all(not TRANSITIONS[state] for state in TERMINAL)


def test_every_live_state_can_reach_an_end() -> None:
    for state in LIVE:
        reached, frontier = set(), {state}
        while frontier:
            reached |= frontier
            frontier = {after for before in frontier for after in TRANSITIONS[before]} - reached
        assert reached >= TERMINAL, state


@pytest.mark.django_db
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(wishes=st.lists(st.sampled_from(list(JobState)), max_size=8))
def test_a_job_takes_exactly_the_steps_the_table_allows(alice: Person, wishes: list[JobState]) -> None:
    job = make_job(alice)
    expected = [JobState.QUEUED]
    for wish in wishes:
        allowed = may_become(expected[-1], wish)
        assert (job_transition(reread(job), to=wish) is not None) == allowed
        if allowed:
            expected.append(wish)
    job = reread(job)
    assert states_of(job) == expected
    assert [event.seq for event in events_of(job)] == list(range(1, job.last_seq + 1))
    assert (job.finished_at is not None) == (expected[-1] in TERMINAL)


@pytest.mark.django_db
def test_a_transition_of_an_older_attempt_is_refused(alice: Person) -> None:
    job = make_job(alice)
    stale = reread(job)
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(attempt=1)
    assert job_transition(stale, to=JobState.FAILED) is None
    assert reread(job).state == "queued"


@pytest.mark.django_db
def test_only_the_named_sources_may_take_the_step(alice: Person) -> None:
    job = make_job(alice)
    assert job_transition(job, to=JobState.CANCELLED, sources=frozenset({JobState.RUNNING})) is None
    assert states_of(job) == ["queued"]
