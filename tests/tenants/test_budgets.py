"""Budgets: what is left is shown, thresholds are told once each, hard ones stop work."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tenants.audit.models import AuditEvent
from tenants.billing.budgets.services import budget_change, budget_create, budgets_check, exhausted
from tenants.billing.ledger.holds import hold_place
from tenants.billing.models import Budget, BudgetAlert
from tenants.models import Project
from tenants.scope import platform_scope, tenant_scope
from tests.support.factories import ProjectFactory, make_key
from tests.support.invoices import use
from tests.support.story import Person, api_client

pytestmark = pytest.mark.django_db
D = Decimal


def make_budget(person: Person, amount: str, *, project: Project | None = None, hard: bool = False) -> Budget:
    with tenant_scope(person.tenant):
        return budget_create(by=person.actor, project=project, amount=D(amount), hard=hard)


def spend(person: Person, euros: int, **changes: object) -> None:
    """This month."""
    use(person.tenant, euros * 20_000, at=timezone.now().replace(tzinfo=None).isoformat(), **changes)


def percents(person: Person) -> list[int]:
    with platform_scope():
        alerts = BudgetAlert.objects.filter(tenant=person.tenant).order_by("percent")
        return list(alerts.values_list("percent", flat=True))


def test_every_threshold_is_told_once_however_often_it_is_checked(alice: Person, charlie: Person) -> None:
    make_budget(alice, "100")
    make_budget(charlie, "1")
    for euros, told in ((49, []), (1, [50]), (29, [50]), (1, [50, 80]), (60, [50, 80, 100]), (60, [50, 80, 100])):
        spend(alice, euros)
        assert percents(alice) == told  # by the usage itself
        for _ in range(3):
            assert budgets_check([alice.tenant.pk]) == []
    assert percents(charlie) == []
    with platform_scope():
        assert AuditEvent.objects.filter(verb="budget.threshold_passed", tenant=alice.tenant).count() == 3


def test_one_step_over_all_thresholds_tells_all_of_them(alice: Person) -> None:
    make_budget(alice, "10")
    spend(alice, 11)
    assert percents(alice) == [50, 80, 100]


def test_a_budget_that_is_used_up_when_it_is_set_tells_at_once(alice: Person) -> None:
    spend(alice, 9)
    make_budget(alice, "10")
    assert percents(alice) == [50, 80]


def test_last_months_spending_is_not_this_months(alice: Person) -> None:
    use(alice.tenant, 1_000_000)  # in May
    make_budget(alice, "10")
    assert percents(alice) == []


def test_a_projects_budget_counts_its_own_spending(alice: Person) -> None:
    lab, other = ProjectFactory(tenant=alice.tenant), ProjectFactory(tenant=alice.tenant)
    make_budget(alice, "10", project=lab, hard=True)
    spend(alice, 20, project_id=other.pk)
    assert not exhausted(alice.tenant, lab)
    spend(alice, 10, project_id=lab.pk)
    assert exhausted(alice.tenant, lab)
    assert not exhausted(alice.tenant, other)
    assert not exhausted(alice.tenant)


def test_a_hard_budget_of_the_tenant_stops_every_project_and_a_soft_one_none(alice: Person) -> None:
    lab = ProjectFactory(tenant=alice.tenant)
    budget = make_budget(alice, "10")
    spend(alice, 10)
    assert not exhausted(alice.tenant, lab)
    with tenant_scope(alice.tenant):
        budget_change(by=alice.actor, budget=budget, hard=True)
        assert exhausted(alice.tenant, lab)
        budget_change(by=alice.actor, budget=budget, amount=D("10.01"))
    assert not exhausted(alice.tenant, lab)


@pytest.mark.django_db(transaction=True)
def test_eight_checks_at_once_tell_each_threshold_once(alice: Person) -> None:
    make_budget(alice, "10")
    spend(alice, 8)

    def check(_: int) -> int:
        try:
            return len(budgets_check([alice.tenant.pk]))
        finally:
            connection.close()

    with platform_scope():
        BudgetAlert.objects.all().delete()  # the usage told already
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(check, range(8))) == 2
    assert percents(alice) == [50, 80]


def test_the_api_sets_shows_changes_and_ends_a_budget(alice: Person) -> None:
    ProjectFactory(tenant=alice.tenant, slug="arm")
    made = alice.api.post("/api/v1/budgets", {"amount": "12.50", "project": "arm", "hard": True})
    assert made.status_code == 201
    path = f"/api/v1/budgets/{made.json()['id']}"
    seen = alice.api.get(path)
    assert seen["ETag"] == '"1"'
    assert (seen.json()["project"], seen.json()["hard"]) == ("arm", True)
    assert D(seen.json()["left"]["amount"]) == D("12.50")
    assert alice.api.get(path, headers={"If-None-Match": '"1"'}).status_code == 304
    assert alice.api.patch(path, {"amount": "20"}).status_code == 428
    changed = alice.api.patch(path, {"amount": "20"}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed["ETag"]) == (200, '"2"')
    assert alice.api.patch(path, {"amount": "30"}, headers={"If-Match": '"1"'}).status_code == 412
    assert alice.api.delete(path, headers={"If-Match": '"1"'}).status_code == 412
    assert alice.api.delete(path, headers={"If-Match": '"2"'}).status_code == 204
    assert alice.api.get(path).status_code == 404
    with platform_scope():
        verbs = AuditEvent.objects.filter(object_type="budget").order_by("pk").values_list("verb", flat=True)
        assert list(verbs) == ["budget.created", "budget.changed", "budget.ended"]


def test_a_list_of_budgets_says_what_is_spent_reserved_and_left(alice: Person) -> None:
    make_budget(alice, "20")
    job_id = uuid4()
    hold_place(tenant=alice.tenant, job_id=job_id, project_id=None, key_id=None, amount=D(5))
    spend(alice, 11, job_id=job_id)
    row = alice.api.get("/api/v1/budgets").json()["results"][0]
    told = {name: D(row[name]["amount"]) for name in ("amount", "spent", "reserved", "left")}
    assert told == {"amount": 20, "spent": 11, "reserved": 0, "left": 9}
    assert row["alerts"] == [50]


def test_a_list_of_many_budgets_takes_as_many_queries_as_one(alice: Person) -> None:
    make_budget(alice, "20")

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert alice.api.get("/api/v1/budgets").status_code == 200
        return len(queries)

    count()  # the first use of a key in a while is written down
    few = count()
    for _ in range(5):
        make_budget(alice, "20", project=ProjectFactory(tenant=alice.tenant))
    assert count() == few


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"amount": "0"}, "/amount"),
        ({"amount": "0.001"}, "/amount"),
        ({"amount": 5}, "/amount"),
        ({"amount": "-5"}, "/amount"),
        ({"amount": "5", "project": "nowhere"}, "/project"),
        ({"amount": "5", "hrad": True}, "/hrad"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_by_field(alice: Person, body: dict, pointer: str) -> None:
    answer = alice.api.post("/api/v1/budgets", body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_a_second_budget_of_the_same_kind_is_refused(alice: Person) -> None:
    make_budget(alice, "20")
    answer = alice.api.post("/api/v1/budgets", {"amount": "30"})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:budget-exists")


def test_only_those_who_manage_the_money_set_budgets(alice: Person, bob: Person) -> None:
    assert bob.api.post("/api/v1/budgets", {"amount": "30"}).status_code == 403
    _, key = make_key(alice.tenant, "billing", alice.user)
    assert api_client(key).post("/api/v1/budgets", {"amount": "30"}).status_code == 201
