"""Estimates: exact where the specification says the number, measured where jobs have run, unknown elsewhere."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from gpu_runtime.protocol.messages import UsageLine, WorkloadState
from jobs.models import Artifact, Job, OutboxMessage
from tenants.billing.models import BillingMode, Hold, PricePlan, PriorityFactor
from tenants.billing.usage.selectors import job_cost
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.support.caps import running, set_clock, steps
from tests.support.jobs import make_job, make_spec, make_version, relay_all
from tests.support.ledger import give_credit, set_mode
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_job, make_policy_spec
from tests.support.story import Person
from tests.support.usage import usage_ingest

pytestmark = pytest.mark.django_db
TASK = {"id": "PushCube-v1", "max_steps": 50}


def estimate(person: Person, spec: dict[str, Any]) -> dict[str, Any]:
    answer = person.api.post("/api/v1/jobs/estimate", spec)
    assert answer.status_code == 200, answer.content
    return answer.json()


def units(told: dict[str, Any]) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {line["meter"]: (line["low"], line["likely"], line["high"]) for line in told["lines"]}


def finish(job: Job, **quantities: int) -> Job:
    """The job has succeeded at its last step, and used these units."""
    with platform_scope():
        Job.objects.filter(pk=job.pk).update(state="succeeded", step=job.total_steps, finished_at=timezone.now())
    lines = tuple(UsageLine(meter=meter.replace("_", ".", 1), quantity=units) for meter, units in quantities.items())
    usage_ingest(
        tenant=job.tenant, job_id=job.pk, source="j", event_id=str(job.pk), lines=lines, occurred_at=timezone.now()
    )
    return job


def test_samples_of_fine_tuning_are_exact_and_compute_is_unknown_until_a_job_has_run(alice: Person):
    told = estimate(alice, make_spec(make_version(alice), training={"steps": 500, "batch_size": 8}))
    assert units(told) == {"train.samples": (4000, 4000, 4000), "train.compute_us": (None, None, None)}
    samples, compute = told["lines"]
    assert samples["basis"] == "exact"
    assert Decimal(samples["cost"]["likely"]) == Decimal("0.2")  # 0.05 per 1,000
    assert compute["basis"].startswith("unknown")
    assert compute["cost"] is None
    assert told["cost"] | {"complete": None} == samples["cost"] | {"complete": None}
    assert told["cost"]["complete"] is False
    assert Decimal(told["hold"]) == Decimal("0.2")


def test_compute_is_the_median_of_the_tenants_own_finished_jobs_per_sample(alice: Person, charlie: Person):
    for compute_us in (3200, 6400, 640_000):
        finish(make_job(alice), train_compute_us=compute_us)  # 200 steps of 16
    finish(make_job(charlie), train_compute_us=3200 * 10**6)
    told = estimate(alice, make_spec(make_version(alice), training={"steps": 100, "batch_size": 10}))
    assert units(told)["train.compute_us"] == (1000, 2000, 200_000)
    line = told["lines"][1]
    assert line["basis"] == "measured: median of the last 3 jobs of this kind, base and head"
    assert Decimal(line["cost"]["likely"]) == 2000 * Decimal("1.08") / 3_600_000_000
    assert told["cost"]["complete"] is True
    assert sum(Decimal(row["cost"]["high"]) for row in told["lines"]) == Decimal(told["cost"]["high"])


def test_only_the_last_twenty_jobs_of_the_same_head_that_succeeded_count(alice: Person):
    old = finish(make_job(alice), train_compute_us=999_999_999)
    with platform_scope():
        Job.objects.filter(pk=old.pk).update(finished_at=timezone.now() - timedelta(days=9))
    for _ in range(20):
        finish(make_job(alice), train_compute_us=3200)
    finish(make_job(alice, head={"type": "oft", "horizon": 4}), train_compute_us=10**9)
    failed = finish(make_job(alice), train_compute_us=10**9)
    with platform_scope():
        Job.objects.filter(pk=failed.pk).update(state="failed")
    told = estimate(alice, make_spec(make_version(alice), training={"steps": 1, "batch_size": 1}))
    assert units(told)["train.compute_us"] == (1, 1, 1)
    assert "last 20 jobs" in told["lines"][1]["basis"]


def test_work_the_platform_did_again_is_no_experience(alice: Person):
    job = finish(make_job(alice), train_compute_us=3200)
    usage_ingest(
        tenant=alice.tenant, job_id=job.pk, source="j", event_id="redone", occurred_at=timezone.now(),
        lines=(UsageLine(meter="train.compute_us", quantity=10**9),), billable=False, reason="redone_after_restart",
    )  # fmt: skip
    told = estimate(alice, make_spec(make_version(alice), training={"steps": 1, "batch_size": 1}))
    assert units(told)["train.compute_us"] == (1, 1, 1)


def test_episodes_to_their_step_limit_bound_what_is_played(alice: Person):
    spec = make_policy_spec("evaluation", make_adapter(alice), environments=[TASK], episodes=10)
    told = estimate(alice, spec)
    assert units(told)["env.steps"] == (0, None, 500)
    assert units(told)["predict.chunks"] == (0, None, 130)  # 13 chunks of 4 for 50 steps
    assert told["lines"][0]["basis"].startswith("at most")
    executed = estimate(alice, spec | {"executed_steps": 2})
    assert units(executed)["predict.chunks"] == (0, None, 250)


def test_without_a_step_limit_nothing_is_known_of_play(alice: Person):
    told = estimate(alice, make_policy_spec("evaluation", make_adapter(alice)))
    assert set(units(told).values()) == {(None, None, None)}
    assert Decimal(told["hold"]) == 0


def test_experience_says_where_below_the_bound_it_will_be(alice: Person):
    adapter = make_adapter(alice)
    finish(make_policy_job(alice, "rollout", adapter), env_steps=100)  # 5 episodes
    spec = make_policy_spec("rollout", adapter, environment=TASK, episodes=10)
    assert units(estimate(alice, spec))["env.steps"] == (0, 200, 500)
    spec["only_successes"] = True
    assert units(estimate(alice, spec))["env.steps"] == (0, 200, 2000)


def test_reinforcement_learning_is_bounded_by_iterations_and_by_its_own_limit_of_steps(alice: Person):
    changes = {"environment": TASK, "collection": {"seats": 4, "episodes": 16, "max_staleness": 0}}
    spec = make_policy_spec("rl", make_adapter(alice), **changes)
    told = units(estimate(alice, spec))
    assert told["env.steps"] == (0, None, 20 * 16 * 50)
    assert told["predict.chunks"] == (0, None, 20 * 16 * 14)
    assert told["train.samples"] == (0, None, 20 * 16 * 14 * 4)
    spec["training"]["max_env_steps"] = 1000
    assert units(estimate(alice, spec))["env.steps"] == (0, None, (20 + 16) * 50)


def test_an_estimate_asks_the_price_of_the_jobs_priority(alice: Person):
    PriorityFactor.objects.create(
        plan=PricePlan.objects.get(), priority=9, permille=1500, valid_from=timezone.now() - timedelta(days=1)
    )
    spec = make_spec(make_version(alice), training={"steps": 500, "batch_size": 8})
    dear = estimate(alice, spec | {"priority": 9})
    assert (dear["priority"], dear["priority_permille"]) == (9, 1500)
    assert Decimal(dear["cost"]["high"]) == Decimal("0.3")


def test_the_hold_is_the_budget_of_the_job_where_it_has_one(alice: Person):
    told = estimate(alice, make_spec(make_version(alice), budget={"max_cost": "0.05"}))
    assert Decimal(told["hold"]) == Decimal("0.05")


def test_every_refusal_is_told_at_once_and_nothing_is_changed(alice: Person):
    version = make_version(alice)
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.QUEUED_JOBS, limit=0)
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.MONEY_PER_MONTH, limit=1)
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.COMPUTE_S_PER_MONTH, limit=0)
    set_mode(alice.tenant, BillingMode.PREPAID)
    give_credit(alice.tenant, "1")
    told = estimate(alice, make_spec(version, budget={"max_cost": "2"}))
    assert told["admitted"] is False
    assert [(row["code"], row["status"]) for row in told["refusals"]] == [
        ("quota_exceeded", 409),
        ("spend_limit_reached", 402),
        ("quota_exceeded", 409),
        ("insufficient_credit", 402),
    ]
    assert [row["resource"] for row in told["refusals"]] == [
        "queued_jobs", "money_per_month", "compute_s_per_month", None,
    ]  # fmt: skip
    with platform_scope():
        assert not Job.objects.exists()
        assert not Hold.objects.exists()
    assert not OutboxMessage.objects.filter(topic="dispatch_job").exists()


def test_a_specification_that_is_wrong_is_refused_as_by_submitting(alice: Person, charlie: Person):
    for spec in (make_spec(make_version(alice), head={"horizon": 99}), make_spec(make_version(charlie))):
        estimated = alice.api.post("/api/v1/jobs/estimate", spec)
        submitted = alice.api.post("/api/v1/jobs", spec)
        assert estimated.status_code == submitted.status_code == 422
        assert estimated.json()["errors"] == submitted.json()["errors"]


def test_the_place_in_line_is_that_behind_jobs_of_its_priority(alice: Person):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.RUNNING_JOBS, limit=1)
    spec = make_spec(make_version(alice))
    assert estimate(alice, spec)["queue"] == {"position": 1, "of": 1, "reason": ""}
    make_job(alice)
    make_job(alice, priority=1)
    assert estimate(alice, spec)["queue"] == {"position": 2, "of": 3, "reason": "quota_running_jobs"}
    assert estimate(alice, spec | {"priority": 9})["queue"] == {"position": 1, "of": 3, "reason": ""}


def test_an_estimate_is_what_a_submit_holds(alice: Person):
    spec = make_spec(make_version(alice), training={"steps": 500, "batch_size": 8})
    told = estimate(alice, spec)
    job_id = alice.api.post("/api/v1/jobs", spec).json()["id"]
    with platform_scope():
        assert Hold.objects.get(job_id=job_id).amount == Decimal(told["hold"]) > 0
        assert not Artifact.objects.exists()


def test_a_finished_job_cost_what_was_estimated(alice: Person, runtime: InMemoryRuntime):
    """The first of its kind tells the rest what a step takes; the second then costs its estimate to the last digit."""
    set_clock(runtime)
    for known in (False, True):
        fields: dict[str, Any] = {"training": {"steps": 3, "batch_size": 16}, "priority": 7}
        told = estimate(alice, make_spec(make_version(alice), **fields))
        assert told["cost"]["complete"] is known
        job, key = running(alice, runtime, **fields)
        steps(runtime, key, 3)
        runtime.tell_state(*key, WorkloadState.SUCCEEDED, step=3, total_steps=3)
        relay_all(runtime)
        by_meter = {line.meter: line for line in job_cost(alice.tenant, job.pk).lines}
        samples, compute = told["lines"]
        assert (samples["high"], Decimal(samples["cost"]["high"])) == (48, by_meter["train.samples"].amount)
        if known:
            assert compute["likely"] == by_meter["train.compute_us"].quantity
            assert Decimal(told["cost"]["likely"]) == job_cost(alice.tenant, job.pk).amount


def test_a_viewer_may_not_ask_for_estimates(viewer: Person):
    assert viewer.api.post("/api/v1/jobs/estimate", {}).status_code == 403
