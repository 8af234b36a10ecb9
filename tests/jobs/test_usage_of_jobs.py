"""From a job to its bill: project, key and priority go along, waiting is free, what cannot be true is refused."""

from decimal import Decimal

import pytest
import time_machine

from gpu_runtime.protocol.messages import WorkloadState
from jobs.relay import Relay
from jobs.services.dispatch import job_dispatch
from jobs.services.submit import job_submit
from tenants.billing.models import DEFAULT_PLAN, Meter, PricePlan, PriorityFactor, RatedUsage, UsageEvent, UsageRollup
from tenants.billing.usage.selectors import job_cost, metered_us, spent_of_key
from tenants.billing.usage.works import FUTURE_TOLERANCE
from tenants.identity import Actor
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory, moment
from tests.support.jobs import make_job, make_spec, make_version, relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def test_usage_is_put_down_to_the_jobs_project_key_and_priority(alice: Person, runtime: InMemoryRuntime) -> None:
    plan = PricePlan.objects.get(code=DEFAULT_PLAN)
    PriorityFactor.objects.create(plan=plan, priority=9, permille=1500, valid_from=moment("2020-01-01T00:00:00"))
    project = ProjectFactory(tenant=alice.tenant, slug="arms")
    actor = Actor(tenant=alice.tenant, role=alice.role, user=alice.user, key=alice.key_row)
    spec = make_spec(make_version(alice), project="arms", priority=9)
    job = job_submit(tenant=alice.tenant, actor=actor, spec=spec)
    job_dispatch(job.pk, runtime=runtime)
    runtime.train_step([(str(job.pk), 1)], 1, busy_us=1_000_000)
    relay_all(runtime)
    with platform_scope():
        for model in (UsageEvent, UsageRollup):
            rows = set(model.objects.values_list("job_id", "project_id", "key_id"))
            assert rows == {(job.pk, project.pk, alice.key_row.pk)}
        assert set(RatedUsage.objects.values_list("factor_permille", flat=True)) == {1500}
    assert job_cost(alice.tenant, job.pk).amount == (Decimal("0.0008") + Decimal("0.0003")) * Decimal("1.5")
    assert spent_of_key(alice.tenant, alice.key_row) == job_cost(alice.tenant, job.pk).amount


def test_waiting_is_never_billed_however_long_it_takes(alice: Person, runtime: InMemoryRuntime) -> None:
    """In the platform's queue, then in the runtime's while others use the device: there is nothing to meter."""
    queued = make_job(alice)
    waiting, key = start_job(alice, runtime)
    busy, other = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    with time_machine.travel(moment("2099-01-01T00:00:00")):
        for step in range(1, 4):
            runtime.train_step([other], step, busy_us=500_000)
        relay_all(runtime)
        for job in (queued, waiting):
            assert job_cost(alice.tenant, job.pk).lines == ()
    of_busy = {line.meter: line.quantity for line in job_cost(alice.tenant, busy.pk).lines}
    assert metered_us(Meter.TRAIN_COMPUTE_US) == {str(alice.tenant.pk): of_busy[Meter.TRAIN_COMPUTE_US]}
    assert of_busy[Meter.TRAIN_COMPUTE_US] == 1_500_000


def test_usage_of_the_future_is_refused_counted_and_stops_nobody(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_job(alice, runtime)
    start = moment("2026-05-01T00:00:00")
    with time_machine.travel(start, tick=False):
        ahead = start + 2 * FUTURE_TOLERANCE
        runtime.now_us = int(ahead.timestamp()) * 1_000_000
        runtime.train_step([key], 1, busy_us=1_000)
        runtime.now_us = int(start.timestamp()) * 1_000_000
        runtime.train_step([key], 2, busy_us=1_000)
        applied = Relay(runtime).poll(wait_s=0)
    assert applied is not None
    assert applied.refused == {"usage_in_future": 1}
    with platform_scope():
        assert UsageEvent.objects.filter(meter="train.samples").count() == 1
