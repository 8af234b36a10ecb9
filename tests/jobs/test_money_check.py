"""What was measured is what was metered, to the microsecond, and a planted difference is found."""

import pytest

from gpu_runtime.protocol.messages import SpanMeasured, UsageLine, UsageMetered
from jobs.models import DeviceSpan
from jobs.selectors.money import reconcile_billing
from tests.support.jobs import relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.service_steps import tell_span, tell_usage
from tests.support.story import Person

pytestmark = pytest.mark.django_db


def test_shares_and_overhead_are_the_measured_time_and_the_books_agree(
    alice: Person, charlie: Person, runtime: InMemoryRuntime
) -> None:
    _, first = start_job(alice, runtime)
    _, second = start_job(alice, runtime)
    _, other = start_job(charlie, runtime)
    for step in range(1, 20):
        runtime.train_step([first, second, other], step, busy_us=1000 + 7 * step)
    relay_all(runtime)
    check = reconcile_billing()
    assert check.ok
    assert check.spans == 19
    assert check.attributed_us + check.overhead_us == check.busy_us
    assert check.difference_us == {}


def test_time_that_was_measured_but_not_metered_is_found(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_job(alice, runtime)
    runtime.train_step([key], 1, busy_us=1000)
    relay_all(runtime)
    span = {"service": "training", "started_at_us": runtime.now_us, "group_size": 1, "samples": 1, "tokens": 1}
    tenant_id = str(alice.tenant.pk)
    runtime.tell(None, None, SpanMeasured(span_id="x", busy_us=5, overhead_us=0, shares={tenant_id: 5}, **span))
    relay_all(runtime)
    assert reconcile_billing().difference_us == {tenant_id: -5}


def test_usage_without_a_measured_span_is_found(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_job(alice, runtime)
    lines = (UsageLine(meter="train.compute_us", quantity=9),)
    runtime.tell(*key, UsageMetered(event_id="e", span_id="none", step=1, lines=lines, group_size=1))
    relay_all(runtime)
    assert reconcile_billing().difference_us == {str(alice.tenant.pk): 9}


def test_a_span_that_does_not_add_up_is_named(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_job(alice, runtime)
    runtime.train_step([key], 1, busy_us=1000)
    relay_all(runtime)
    DeviceSpan.objects.update(busy_us=1001)
    check = reconcile_billing()
    assert not check.ok
    assert len(check.unbalanced_spans) == 1


def test_errors_of_two_services_that_cancel_are_found_all_the_same(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_job(alice, runtime)
    tell_usage(runtime, key, "a", {"train.compute_us": 70})
    tell_span(runtime, "training", "a", {key: 60}, busy_us=60)
    tell_usage(runtime, key, "b", {"predict.compute_us": 30})
    tell_span(runtime, "inference", "b", {key: 40}, busy_us=40)
    relay_all(runtime)
    check = reconcile_billing()
    tenant_id = str(alice.tenant.pk)
    assert check.difference_us == {}
    assert check.service_difference_us == {"training": {tenant_id: 10}, "inference": {tenant_id: -10}}
    assert not check.ok


def test_time_of_a_service_that_has_no_meter_is_found(alice: Person, runtime: InMemoryRuntime) -> None:
    _, key = start_job(alice, runtime)
    tell_span(runtime, "dreaming", "x", {key: 5}, busy_us=5)
    relay_all(runtime)
    assert reconcile_billing().service_difference_us == {"dreaming": {str(alice.tenant.pk): -5}}
