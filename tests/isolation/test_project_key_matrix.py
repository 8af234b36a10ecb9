"""Every REST route x a key that is bound to one project, while all rows are of other projects or of the whole lab.

It may do what an owner may; so every refusal here is the project's doing.
"""

from typing import Any

import pytest

from tenants.models import Role
from tenants.permissions import Permission
from tenants.scope import platform_scope
from tenants.whole_tenant import ForTheWholeTenant
from tests.isolation.rest_table import REST
from tests.isolation.test_route_matrix import VIEWS, call
from tests.support.everybody import cast_of, rows_of
from tests.support.factories import ProjectFactory, make_key
from tests.support.invoices import AFTER_MAY, close_may, use
from tests.support.story import Api, Person, Story, api_client

# People, money, the audit log and webhooks: 403. Rows of a project: 404. Everything else is the whole lab's to use.
OF_THE_LAB = (*("members", "invitations", "audit", "balance", "ledger", "invoices", "webhooks", "webhook-deliveries"),)
OF_A_PROJECT = ("project_id", "job_id", "artifact_id", "budget_id", "key_id")


def expected(route: str) -> str:
    if route.split("/api/v1/")[1].split("/")[0] in OF_THE_LAB:
        return "403"
    if any(f":{name}>" in route for name in OF_A_PROJECT):
        return "404"
    return REST[route].split()[0]


@pytest.fixture
def ids(story: Story) -> dict[str, str]:
    return rows_of(story)


@pytest.fixture
def bound(story: Story) -> Api:
    project = ProjectFactory(tenant=story.alice.tenant, slug="pushing")
    return cast_of(story).keyed(project=project)


@pytest.mark.parametrize("route", REST)
def test_a_key_of_one_project_reaches_nothing_beyond_it(route: str, bound: Api, ids: dict[str, str]):
    assert str(call(bound, route, ids).status_code) == expected(route)


@pytest.mark.parametrize("route", REST)
def test_the_views_about_the_whole_lab_are_those_that_say_so(route: str):
    method, path = route.split(" ")
    assert issubclass(VIEWS[path], ForTheWholeTenant) == (expected(route) == "403"), method


def test_a_key_of_one_project_is_told_the_limits_of_that_project_alone(alice: Person, bound: Api):
    lines: list[dict[str, Any]] = bound.get("/api/v1/quotas").json()["results"]
    assert {line["project"]["slug"] for line in lines} == {"pushing"}
    assert {line["resource"] for line in lines} >= {"running_jobs", "money_per_month"}
    whole = alice.api.get("/api/v1/quotas").json()["results"]
    assert {line["project"] and line["project"]["slug"] for line in whole} == {None}


def test_a_key_of_one_project_sees_and_changes_budgets_of_that_project_alone(alice: Person, bound: Api):
    def made(api: Api, **body: object) -> Any:
        return api.post("/api/v1/budgets", {"amount": "5"} | body).json()

    whole, other, own = made(alice.api), made(alice.api, project="default"), made(bound)
    assert own["project"] == "pushing"
    assert [row["id"] for row in bound.get("/api/v1/budgets").json()["results"]] == [own["id"]]
    for budget in (whole, other):
        path, match = f"/api/v1/budgets/{budget['id']}", {"If-Match": '"1"'}
        assert bound.patch(path, {"amount": "1000"}, headers=match).status_code == 404
        assert bound.delete(path, headers=match).status_code == 404
    changed = bound.patch(f"/api/v1/budgets/{own['id']}", {"amount": "4"}, headers={"If-Match": f'"{own["version"]}"'})
    assert changed.status_code == 200


def test_an_invoice_names_every_project_so_a_key_of_one_does_not_get_it(alice: Person, bound: Api):
    use(alice.tenant, 20)
    with platform_scope():
        invoice = close_may(alice.tenant)
    assert invoice.finalized_at == AFTER_MAY
    for path in ("", "/csv"):
        assert bound.get(f"/api/v1/invoices/{invoice.pk}{path}").status_code == 403


def test_nobody_escapes_a_spend_cap_by_inviting_somebody(alice: Person):
    capped = api_client(make_key(alice.tenant, Role.OWNER, alice.user, spend_cap="1")[1])
    offer = {"email": "dora@example.org", "role": "viewer"}
    assert capped.post("/api/v1/invitations", offer).status_code == 403
    assert capped.post("/api/v1/members", offer | {"email": "charlie@example.org"}).status_code == 403
    scoped = make_key(alice.tenant, Role.OWNER, alice.user, spend_cap="1", scopes=[Permission.KEYS_MANAGE])[1]
    assert api_client(scoped).post("/api/v1/keys", {"name": "x", "scopes": ["keys:manage"]}).status_code == 403
