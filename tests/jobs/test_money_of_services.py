"""Training, predictions and environments on one bill: exact to the last digit, and equal to what was measured."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import DeviceSpan
from jobs.selectors.money import reconcile_billing
from tenants.billing.reconcile.usage import every_event_is_rated
from tenants.billing.usage.selectors import job_cost
from tenants.scope import platform_scope
from tests.support.jobs import relay_all, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import start_policy_job
from tests.support.service_steps import environment_use, predict_group
from tests.support.story import Person

pytestmark = pytest.mark.django_db

# What the price list promises for one unit.
UNIT_PRICES = {
    "train.samples": Decimal("0.00005"),
    "train.compute_us": Decimal("0.0000000003"),
    "predict.chunks": Decimal("0.00002"),
    "predict.compute_us": Decimal("0.0000000003"),
    "env.steps": Decimal("0.00001"),
    "env.compute_us": Decimal("0.00000000003"),
}


def test_each_meter_is_priced_as_the_list_says_to_the_last_digit(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_policy_job(alice, runtime, "rl")
    runtime.train_step([key], 1, busy_us=1_234_567)
    predict_group(runtime, {key: 333}, busy_us=7_654_321)
    environment_use(runtime, key, steps=12_345, busy_us=987_654_321)
    relay_all(runtime)
    cost = job_cost(alice.tenant, job.pk)
    quantities = {line.meter: line.quantity for line in cost.lines}
    assert quantities == {
        "train.samples": 16,
        "train.compute_us": 1_234_567,
        "predict.chunks": 333,
        "predict.compute_us": 7_654_321,
        "env.steps": 12_345,
        "env.compute_us": 987_654_321,
    }
    assert {line.meter: line.amount for line in cost.lines} == {
        meter: quantity * UNIT_PRICES[meter] for meter, quantity in quantities.items()
    }
    # By hand: 0.0008 + 0.0003703701 + 0.00666 + 0.0022962963 + 0.12345 + 0.02962962963
    assert f"{cost.amount:f}" == "0.163206296030"


def test_work_done_again_is_metered_free_and_says_why(alice: Person, runtime: InMemoryRuntime) -> None:
    job, key = start_policy_job(alice, runtime, "rl")
    again = {"billable": False, "reason": "redone_after_restart"}
    predict_group(runtime, {key: 10}, busy_us=500, **again)
    environment_use(runtime, key, steps=100, busy_us=9_000, **again)
    relay_all(runtime)
    cost = job_cost(alice.tenant, job.pk)
    assert {line.meter: line.quantity for line in cost.lines} == {
        "predict.chunks": 10, "predict.compute_us": 500, "env.steps": 100, "env.compute_us": 9_000,
    }  # fmt: skip
    assert cost.amount == 0
    assert reconcile_billing().ok


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["training", "inference", "environment"]),
        st.integers(1, 3),  # jobs of the group
        st.integers(0, 10_000_000),  # busy microseconds
        st.booleans(),  # billable
    ),
    min_size=1,
    max_size=8,
)


@settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, data=st.data())
def test_whatever_the_services_did_metered_is_measured_and_a_planted_microsecond_is_found(
    alice: Person, charlie: Person, steps: list[tuple[str, int, int, bool]], data: Any
) -> None:
    with transaction.atomic():
        check_example(alice, charlie, steps, data)
        transaction.set_rollback(True)  # the next example begins with empty books


def check_example(alice: Person, charlie: Person, steps: list[tuple[str, int, int, bool]], data: Any) -> None:
    runtime = InMemoryRuntime()
    starts = (start_job(alice, runtime), start_policy_job(alice, runtime, "rl"))
    starts = (*starts, start_policy_job(charlie, runtime, "evaluation"))
    keys = [key for _, key in starts]
    for number, (service, members, busy_us, billable) in enumerate(steps, 1):
        play(runtime, keys[:members], service, number, busy_us, {} if billable else REDONE)
    relay_all(runtime)
    check = reconcile_billing()
    assert check.ok
    assert check.spans >= len(steps)
    assert check.attributed_us + check.overhead_us == check.busy_us
    with platform_scope():
        assert every_event_is_rated().differences == []
    plant(data)
    assert not reconcile_billing().ok


REDONE = {"billable": False, "reason": "redone_after_restart"}


def play(
    runtime: InMemoryRuntime, keys: list[tuple[str, int]], service: str, number: int, busy_us: int, free: dict
) -> None:
    if service == "training":
        runtime.train_step(keys, number, busy_us=busy_us)
    elif service == "inference":
        predict_group(runtime, {key: index + 1 for index, key in enumerate(keys)}, busy_us=busy_us, **free)
    else:
        for key in keys:
            environment_use(runtime, key, steps=busy_us // 7, busy_us=busy_us, **free)


def plant(data: Any) -> None:
    """One span attributes a microsecond that nobody's bill has; the span itself adds up."""
    span = data.draw(st.sampled_from(list(DeviceSpan.objects.order_by("pk"))))
    tenant_id = sorted(span.shares)[0]
    span.shares[tenant_id] += 1
    span.busy_us += 1
    span.save()
