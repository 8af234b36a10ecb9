"""Two relays with journals of their own: each charges the tenant whose job the other one ends, and neither waits."""

import contextlib
import threading
from typing import Any

import pytest

from gpu_runtime.protocol.messages import WorkloadState
from jobs.services import ingest
from tenants.billing.models import Hold
from tenants.scope import platform_scope
from tests.support.caps import cost, running, set_cap_prices, set_clock
from tests.support.jobs import relay_all, reread
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person
from tests.support.threads import all_at_once

pytestmark = pytest.mark.django_db(transaction=True)

MEET_S = 1.0  # how long one relay waits for the other to have charged, too


@pytest.fixture
def both_have_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """No relay gives a hold back before the other one has booked its usage, if that is possible at all."""
    release, meeting = ingest.hold_release, threading.Barrier(2)

    def release_together(**fields: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):  # the other one waits for us: that is an order
            meeting.wait(MEET_S)
        return release(**fields)

    monkeypatch.setattr(ingest, "hold_release", release_together)


def test_relays_that_charge_and_end_jobs_of_the_same_tenants_do_not_wait_for_each_other(
    alice: Person, charlie: Person, both_have_charged: None
):
    set_cap_prices()
    runtimes = [InMemoryRuntime(), InMemoryRuntime()]
    charged, ended = [], []
    for runtime, payer, other in zip(runtimes, (alice, charlie), (charlie, alice), strict=True):
        set_clock(runtime)
        job, key = running(payer, runtime)
        ending, ending_key = running(other, runtime)
        runtime.train_step([key], 1)
        runtime.tell_state(*ending_key, WorkloadState.SUCCEEDED)
        charged.append(job)
        ended.append(ending)
    outcomes = all_at_once(lambda number: relay_all(runtimes[number]), count=2)
    assert [outcome for outcome in outcomes if isinstance(outcome, Exception)] == []
    assert [cost(job) for job in charged] == [1, 1]
    assert [reread(job).state for job in ended] == ["succeeded", "succeeded"]
    with platform_scope():
        assert set(Hold.objects.filter(released_at=None).values_list("job_id", flat=True)) == {j.pk for j in charged}
