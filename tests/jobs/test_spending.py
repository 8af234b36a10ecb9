"""Money at the door: spent + reserved + the job's hold stay within every cap, whoever submits at the same moment."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from gpu_runtime.protocol.messages import UsageLine, WorkloadState
from jobs.models import Job
from jobs.services.cancel import job_cancel
from jobs.services.submit import job_submit
from tenants.billing.ledger.holds import reserved
from tenants.billing.models import BillingMode, Budget, Hold
from tenants.errors import ApplicationError
from tenants.models import Project
from tenants.quotas.models import Resource
from tenants.quotas.services import quota_set
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory, make_key
from tests.support.jobs import make_job, make_spec, make_version, relay_all, start_job
from tests.support.ledger import give_credit, set_mode
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_jobs import make_adapter, make_policy_spec
from tests.support.story import Person, api_client
from tests.support.threads import all_at_once
from tests.support.usage import usage_ingest


def submit(person: Person, cost: str, **fields: Any) -> Any:
    return person.api.post("/api/v1/jobs", make_spec(make_version(person), budget={"max_cost": cost}, **fields))


def spend(person: Person, job: Job, samples: int) -> None:
    """At 0.05 per 1,000, booked to the job's project and key."""
    line = UsageLine(meter="train.samples", quantity=samples)
    usage_ingest(
        tenant=person.tenant, job_id=job.pk, project_id=job.project_id, key_id=job.api_key_id, source="j",
        event_id=str(job.pk), lines=(line,), occurred_at=timezone.now(),
    )  # fmt: skip


def money_limit(person: Person, limit: int, project: Project | None = None) -> None:
    resource = Resource.MONEY_PER_MONTH
    quota_set(by=person.actor, tenant=person.tenant, resource=resource, limit=limit, project=project)


@pytest.mark.django_db
def test_a_job_reserves_its_budget_and_gives_it_back_when_it_ends(alice: Person):
    job = make_job(alice, budget={"max_cost": "3.5"})
    assert reserved(alice.tenant) == Decimal("3.5")
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    assert reserved(alice.tenant) == 0


@pytest.mark.django_db
def test_the_last_usage_is_captured_before_the_hold_is_given_back(alice: Person, runtime: InMemoryRuntime):
    set_mode(alice.tenant, BillingMode.PREPAID)
    give_credit(alice.tenant, "5")
    job, key = start_job(alice, runtime, budget={"max_cost": "5"})
    runtime.train_step([key], 1)
    runtime.tell_state(*key, WorkloadState.SUCCEEDED)
    relay_all(runtime)
    with platform_scope():
        hold = Hold.objects.get(job_id=job.pk)
    assert hold.released_at is not None
    assert hold.captured > 0
    assert hold.captured == hold.captured_funds


@pytest.mark.django_db
def test_what_is_reserved_counts_against_the_months_limit(alice: Person):
    money_limit(alice, 10)
    assert submit(alice, "6").status_code == 202
    answer = submit(alice, "4.01")
    problem = answer.json()
    assert answer.status_code == 402
    assert (problem["resource"], Decimal(problem["limit"]), Decimal(problem["used"])) == ("money_per_month", 10, 6)
    assert Decimal(problem["needed"]) == Decimal("4.01")
    assert "budget.max_cost of at most 4," in problem["detail"]
    assert submit(alice, "4").status_code == 202
    assert submit(alice, "0").status_code == 402, "nothing is left, so nothing starts"


@pytest.mark.django_db
def test_what_was_spent_counts_too_and_is_not_counted_twice(alice: Person):
    money_limit(alice, 10)
    job = make_job(alice, budget={"max_cost": "5"})
    spend(alice, job, 40_000)  # 2, captured from the hold
    assert submit(alice, "5.01").status_code == 402
    assert submit(alice, "5").status_code == 202
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    assert submit(alice, "3.01").status_code == 402
    assert submit(alice, "3").status_code == 202


@pytest.mark.django_db
def test_a_projects_limit_and_its_hard_budget_are_its_own(alice: Person):
    small = ProjectFactory(tenant=alice.tenant, slug="small")
    money_limit(alice, 5, small)
    assert submit(alice, "6", project="small").status_code == 402
    assert submit(alice, "6").status_code == 202
    with platform_scope():
        Budget.objects.create(tenant=alice.tenant, project=small, amount=Decimal(2), hard=True)
    answer = submit(alice, "3", project="small")
    assert (answer.status_code, answer.json()["resource"]) == (402, "budget")
    assert submit(alice, "2", project="small").status_code == 202


@pytest.mark.django_db
def test_a_hard_budget_refuses_and_a_soft_one_does_not(alice: Person):
    with platform_scope():
        budget = Budget.objects.create(tenant=alice.tenant, amount=Decimal(2), hard=True)
    assert submit(alice, "2.5").status_code == 402
    with platform_scope():
        Budget.objects.filter(pk=budget.pk).update(hard=False)
    assert submit(alice, "2.5").status_code == 202


@pytest.mark.django_db
def test_a_keys_cap_is_over_all_its_jobs_for_ever_and_binds_nobody_else(alice: Person):
    _, text = make_key(alice.tenant, "researcher", alice.user, spend_cap=Decimal(4))
    capped, version = api_client(text), make_version(alice)
    first = capped.post("/api/v1/jobs", make_spec(version, budget={"max_cost": "3"}))
    assert first.status_code == 202
    refused = capped.post("/api/v1/jobs", make_spec(version, budget={"max_cost": "1.5"}))
    assert (refused.status_code, refused.json()["resource"]) == (402, "key_spend_cap")
    with platform_scope():
        job = Job.objects.get(pk=first.json()["id"])
    spend(alice, job, 60_000)  # 3: the whole hold
    job_cancel(tenant=alice.tenant, job_id=job.pk)
    assert capped.post("/api/v1/jobs", make_spec(version, budget={"max_cost": "1.5"})).status_code == 402
    assert capped.post("/api/v1/jobs", make_spec(version, budget={"max_cost": "1"})).status_code == 202
    assert submit(alice, "100").status_code == 202


@pytest.mark.django_db
def test_compute_of_the_month_refuses_when_it_is_used_up(alice: Person):
    quota_set(by=alice.actor, tenant=alice.tenant, resource=Resource.COMPUTE_S_PER_MONTH, limit=2)
    job = make_job(alice)
    line = UsageLine(meter="train.compute_us", quantity=1_999_999)
    book = {"tenant": alice.tenant, "job_id": job.pk, "source": "j", "occurred_at": timezone.now()}
    usage_ingest(event_id="1", lines=(line,), **book)
    assert submit(alice, "1").status_code == 202
    usage_ingest(event_id="2", lines=(UsageLine(meter="predict.compute_us", quantity=1),), **book)
    answer = submit(alice, "1")
    assert answer.status_code == 409
    assert (answer.json()["resource"], answer.json()["limit"], answer.json()["used"]) == ("compute_s_per_month", 2, 2)


@pytest.mark.django_db
def test_a_prepaid_tenant_without_credit_is_refused_and_leaves_nothing_behind(alice: Person):
    set_mode(alice.tenant, BillingMode.PREPAID)
    answer = submit(alice, "1")
    assert (answer.status_code, answer.json()["needed"][:1]) == (402, "1")
    with platform_scope():
        assert not Job.objects.exists()
    give_credit(alice.tenant, "1")
    assert submit(alice, "1").status_code == 202


@pytest.mark.django_db
def test_a_job_without_any_bound_worth_the_name_must_give_one(alice: Person):
    changes = {"environment": {"id": "PushCube-v1", "max_steps": 100_000}, "training": {"iterations": 1_000_000}}
    spec = make_policy_spec("rl", make_adapter(alice), **changes)
    answer = alice.api.post("/api/v1/jobs", spec)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/budget/max_cost"]
    assert alice.api.post("/api/v1/jobs", spec | {"budget": {"max_cost": "50"}}).status_code == 202


@pytest.mark.django_db
def test_what_all_jobs_together_reserve_stays_within_what_the_books_can_hold(alice: Person):
    for _ in range(5):
        assert submit(alice, "999999").status_code == 202
    answer = submit(alice, "999999")
    assert (answer.status_code, answer.json()["resource"]) == (402, "held")


@pytest.mark.django_db(transaction=True)
def test_of_eight_submits_at_once_with_money_for_three_exactly_three_are_admitted(alice: Person):
    money_limit(alice, 10)
    spec = make_spec(make_version(alice), budget={"max_cost": "3"})
    outcomes = all_at_once(lambda _: job_submit(tenant=alice.tenant, actor=alice.actor, spec=spec))
    told = Counter(one.code if isinstance(one, ApplicationError) else type(one).__name__ for one in outcomes)
    assert told == {"Job": 3, "spend_limit_reached": 5}
    assert reserved(alice.tenant) == 9
