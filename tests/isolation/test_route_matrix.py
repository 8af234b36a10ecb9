"""Every route of the API x everybody who might call it. A route that is not declared here fails the test."""

import re
import uuid
from dataclasses import dataclass
from functools import partial

import pytest
from django.utils import timezone

from jobs.models import Artifact
from tenants.models import Membership
from tenants.scope import platform_scope
from tests.support.factories import UploadFactory, make_key
from tests.support.invoices import make_billing_rows
from tests.support.jobs import make_job
from tests.support.routes import api_routes, api_views
from tests.support.story import Api, Story, api_client
from tests.support.webhooks import make_delivery

PUBLIC = {"GET /api/v1/schema", "GET /api/v1/docs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Status for the owner of another tenant and for a viewer of the own one; anonymous and revoked get 401."""

    stranger: int
    viewer: int
    body: dict[str, str] | None = None


LIST = Expected(stranger=200, viewer=200)  # a stranger sees their own, empty list
CREATE = Expected(stranger=422, viewer=403)  # in their own tenant; the empty body is refused
ROW = Expected(stranger=404, viewer=200)
CHANGE = Expected(stranger=404, viewer=403)

MATRIX: dict[str, Expected] = {
    "GET /api/v1/me": LIST,
    "GET /api/v1/members": LIST,
    "POST /api/v1/members": CREATE,
    "PATCH /api/v1/members/<int:member_id>": Expected(stranger=404, viewer=403, body={"role": "viewer"}),
    "DELETE /api/v1/members/<int:member_id>": CHANGE,
    "GET /api/v1/keys": Expected(stranger=200, viewer=403),
    "POST /api/v1/keys": CREATE,
    "DELETE /api/v1/keys/<uuid:key_id>": CHANGE,
    "GET /api/v1/datasets": LIST,
    "POST /api/v1/datasets": Expected(stranger=415, viewer=403),  # the empty body is JSON
    "GET /api/v1/datasets/<uuid:dataset_id>": ROW,
    "PATCH /api/v1/datasets/<uuid:dataset_id>": CHANGE,
    "DELETE /api/v1/datasets/<uuid:dataset_id>": CHANGE,
    "GET /api/v1/datasets/<uuid:dataset_id>/versions/<int:number>": ROW,
    "GET /api/v1/dataset-versions/<uuid:version_id>": ROW,
    "DELETE /api/v1/dataset-versions/<uuid:version_id>": CHANGE,
    "GET /api/v1/dataset-versions/<uuid:version_id>/jobs": ROW,
    "GET /api/v1/dataset-versions/<uuid:version_id>/lineage": ROW,
    # The version of this test has no bytes: who may look gets as far as that.
    "GET /api/v1/dataset-versions/<uuid:version_id>/preview": Expected(stranger=404, viewer=409),
    "GET /api/v1/dataset-versions/<uuid:version_id>/episodes/<int:episode>": Expected(stranger=404, viewer=409),
    "GET /api/v1/dataset-versions/<uuid:version_id>/episodes/<int:episode>/frames/<str:camera>": Expected(
        stranger=404, viewer=409
    ),
    "GET /api/v1/uploads": LIST,
    "POST /api/v1/uploads": CREATE,
    "GET /api/v1/uploads/<uuid:upload_id>": ROW,
    "PATCH /api/v1/uploads/<uuid:upload_id>": CHANGE,
    "DELETE /api/v1/uploads/<uuid:upload_id>": CHANGE,
    "POST /api/v1/uploads/<uuid:upload_id>/complete": CHANGE,
    "GET /api/v1/prices": LIST,
    "GET /api/v1/usage": LIST,
    "GET /api/v1/usage/csv": LIST,
    "GET /api/v1/balance": LIST,
    "GET /api/v1/ledger": LIST,
    "GET /api/v1/budgets": LIST,
    "POST /api/v1/budgets": CREATE,
    "GET /api/v1/budgets/<uuid:budget_id>": ROW,
    "PATCH /api/v1/budgets/<uuid:budget_id>": CHANGE,
    "DELETE /api/v1/budgets/<uuid:budget_id>": CHANGE,
    "GET /api/v1/invoices": LIST,
    "GET /api/v1/invoices/<uuid:invoice_id>": ROW,
    "GET /api/v1/invoices/<uuid:invoice_id>/csv": ROW,
    "GET /api/v1/bases": LIST,
    "GET /api/v1/quotas": LIST,
    "GET /api/v1/projects/<uuid:project_id>/quotas/<slug:resource>": ROW,
    "PUT /api/v1/projects/<uuid:project_id>/quotas/<slug:resource>": Expected(
        stranger=404, viewer=403, body={"limit": "3"}
    ),
    "DELETE /api/v1/projects/<uuid:project_id>/quotas/<slug:resource>": CHANGE,
    "GET /api/v1/runtime": LIST,
    "GET /api/v1/jobs": LIST,
    "POST /api/v1/jobs": CREATE,
    "GET /api/v1/jobs/<uuid:job_id>": ROW,
    "POST /api/v1/jobs/<uuid:job_id>/cancel": CHANGE,
    "POST /api/v1/jobs/<uuid:job_id>/dataset-import": CHANGE,
    "GET /api/v1/jobs/<uuid:job_id>/events": ROW,
    "GET /api/v1/jobs/<uuid:job_id>/metrics": ROW,
    "GET /api/v1/jobs/<uuid:job_id>/artifacts": ROW,
    "GET /api/v1/jobs/<uuid:job_id>/policy-versions": ROW,
    "GET /api/v1/artifacts": LIST,
    "GET /api/v1/artifacts/<uuid:artifact_id>": ROW,
    # The bytes are the runtime's, which does not run in this test: who may ask gets as far as asking it.
    "GET /api/v1/artifacts/<uuid:artifact_id>/download": Expected(stranger=404, viewer=503),
    "GET /api/v1/jobs/<uuid:job_id>/evaluation": Expected(stranger=404, viewer=503),
    "GET /api/v1/webhooks": Expected(stranger=200, viewer=403),
    "POST /api/v1/webhooks": CREATE,
    "GET /api/v1/webhooks/<uuid:webhook_id>": CHANGE,
    "PATCH /api/v1/webhooks/<uuid:webhook_id>": CHANGE,
    "DELETE /api/v1/webhooks/<uuid:webhook_id>": CHANGE,
    "POST /api/v1/webhooks/<uuid:webhook_id>/rotate-secret": CHANGE,
    "POST /api/v1/webhooks/<uuid:webhook_id>/test": CHANGE,
    "GET /api/v1/webhook-deliveries": Expected(stranger=200, viewer=403),
    "GET /api/v1/webhook-deliveries/<uuid:delivery_id>": CHANGE,
    "POST /api/v1/webhook-deliveries/<uuid:delivery_id>/redeliver": CHANGE,
}
ROW_ROUTES = [route for route in MATRIX if "<" in route]


@pytest.fixture
def ids(story: Story) -> dict[str, str]:
    """Ids of Alice's rows by the name of the URL parameter."""
    alice = story.alice
    job = make_job(alice)
    with platform_scope():
        version = job.dataset_version
        member = Membership.objects.get(user=story.bob.user, tenant=alice.tenant)
        artifact = Artifact.objects.create(
            tenant=alice.tenant, job=job, attempt=1, runtime_key="a-1", kind="evaluation", name="report",
            policy_version=1, size_bytes=1, sha256="0" * 64, manifest={}, created_at=timezone.now(),
        )  # fmt: skip
    delivery = make_delivery(alice)
    invoice, budget = make_billing_rows(alice)
    return {
        "invoice_id": str(invoice.pk),
        "budget_id": str(budget.pk),
        "webhook_id": str(delivery.endpoint_id),
        "delivery_id": str(delivery.pk),
        "job_id": str(job.pk),
        "version_id": str(version.pk),
        "dataset_id": str(version.dataset_id),
        "number": str(version.number),
        "episode": "0",
        "camera": "observation.images.base",
        "upload_id": str(UploadFactory(tenant=alice.tenant).pk),
        "member_id": str(member.pk),
        "key_id": str(story.bob.key_row.pk),
        "artifact_id": str(artifact.pk),
        "resource": "running_jobs",
    }


def fill(route: str, ids: dict[str, str]) -> tuple[str, str]:
    """(method, path) with the ids in place."""
    method, path = route.split(" ")
    return method.lower(), re.sub(r"<\w+:(\w+)>", lambda match: ids[match[1]], path)


def call(api: Api, route: str, ids: dict[str, str]):
    method, path = fill(route, ids)
    if method == "get":
        return api.get(path)
    return getattr(api, method)(path, MATRIX[route].body or {})


def test_every_route_is_declared_and_every_declared_route_exists():
    assert set(api_routes()) == set(MATRIX) | PUBLIC


def test_every_view_declares_the_permission_of_each_method_it_handles():
    for path, view in api_views():
        if f"GET {path}" not in PUBLIC:
            handled = {name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view, name)}
            assert set(view.permission) == handled, path


@pytest.mark.django_db
@pytest.mark.parametrize("route", sorted(PUBLIC))
def test_a_public_route_answers_anybody(route: str):
    assert api_client().get(route.split(" ")[1]).status_code == 200


@pytest.mark.parametrize("route", MATRIX)
def test_everybody_gets_the_declared_answer(route: str, story: Story, ids: dict[str, str]):
    _, revoked = make_key(story.alice.tenant, "owner", story.alice.user, revoked_at=timezone.now())
    assert call(api_client(), route, ids).status_code == 401
    assert call(api_client(revoked), route, ids).status_code == 401
    assert call(story.charlie.api, route, ids).status_code == MATRIX[route].stranger
    assert call(story.viewer.api, route, ids).status_code == MATRIX[route].viewer
    assert call(story.alice.api, route, ids).status_code not in {401, 403, 404}


@pytest.mark.parametrize("route", ROW_ROUTES)
def test_a_foreign_row_equals_a_missing_one_byte_for_byte(route: str, story: Story, ids: dict[str, str]):
    missing = {name: "9" * len(value) if value.isdigit() else str(uuid.uuid4()) for name, value in ids.items()}
    missing |= {name: ids[name] for name in ("number", "camera")}  # of the same length, for the sake of the headers
    foreign_answer, missing_answer = call(story.charlie.api, route, ids), call(story.charlie.api, route, missing)
    assert foreign_answer.status_code == missing_answer.status_code == 404
    assert _neutral(foreign_answer, fill(route, ids)[1]) == _neutral(missing_answer, fill(route, missing)[1])


def _neutral(answer, path: str) -> tuple[bytes, dict[str, str]]:
    """Body and headers without the request's id, the path the caller sent and how many requests they have left."""
    body = answer.content.replace(answer["X-Request-ID"].encode(), b"REQUEST").replace(path.encode(), b"PATH")
    return body, {name: value for name, value in answer.items() if name not in {"X-Request-ID", "RateLimit"}}


@pytest.mark.parametrize(
    "route",
    [
        *("GET /api/v1/jobs", "GET /api/v1/artifacts", "GET /api/v1/datasets"),
        *("GET /api/v1/members", "GET /api/v1/keys"),
    ],
)
def test_a_list_shows_nothing_of_another_tenant(route: str, story: Story, ids: dict[str, str]):
    rows = call(story.charlie.api, route, ids).json()["results"]
    assert all("charlie" in str(row) for row in rows)
    assert not any(value in str(rows) for value in ids.values() if len(value) > 8)


@pytest.mark.parametrize("route", sorted(set(MATRIX) - {"POST /api/v1/datasets"}))  # its fields come in the query
def test_no_route_ignores_a_query_parameter_it_does_not_know(route: str, story: Story, ids: dict[str, str]):
    method, path = fill(route, ids)
    send = (
        story.alice.api.get
        if method == "get"
        else partial(getattr(story.alice.api, method), data=MATRIX[route].body or {})
    )
    answer = send(f"{path}?surprise=1")
    assert answer.status_code == 422
    assert "?surprise" in [error["pointer"] for error in answer.json()["errors"]]


@pytest.mark.parametrize("route", ["GET /api/v1/jobs", "GET /api/v1/me"])
def test_a_method_no_view_handles_is_405(route: str, story: Story):
    path = route.split(" ")[1]
    for method in ("options", "put"):
        assert getattr(story.alice.api, method)(path).status_code == 405
