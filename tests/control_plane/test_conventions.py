"""What holds for every route of the API: keys of creating POSTs, pages of lists, problems as refusals."""

import inspect
import json
import re
from typing import Any

import pytest
from django.test import Client

from control_plane.management.commands.openapi import description
from tests.isolation.rest_table import BODIES, REST
from tests.support.everybody import rows_of, undone
from tests.support.routes import api_views, fill
from tests.support.story import Api, Person, Story, api_client

# POSTs that neither create nor spend, with what makes a repeat harmless.
HARMLESS = {
    "POST /api/v1/jobs/estimate": "it has no effect",
    "POST /api/v1/jobs/<uuid:job_id>/cancel": "a job that is being cancelled stays so",
    "POST /api/v1/jobs/<uuid:job_id>/dataset-import": "an import under way goes on",
    "POST /api/v1/projects/<uuid:project_id>/archive": "an archived project stays so",
}
POSTS = {f"POST {path}": view for path, view in api_views() if hasattr(view, "post")}
KEYED = sorted(set(POSTS) - set(HARMLESS))
# Lists that come whole, with what bounds them.
WHOLE = {
    "/api/v1/bases": "the base models of the deployment",
    "/api/v1/prices": "the prices of one plan",
    "/api/v1/quotas": "one row for each limited resource of the tenant and its projects",
    "/api/v1/usage": "sums; more rows than its bound are refused",
}
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads(description())


def documented(schema: dict[str, Any], route: str) -> dict[str, Any]:
    method, path = route.split(" ")
    return schema["paths"][re.sub(r"<\w+:(\w+)>", r"{\1}", path)][method.lower()]


@pytest.mark.parametrize("route", sorted(POSTS))
def test_every_post_needs_an_idempotency_key_or_is_declared_harmless(route: str, schema: dict[str, Any]):
    parameters = documented(schema, route).get("parameters", [])
    told = any(item["name"] == "Idempotency-Key" and item["required"] for item in parameters)
    kept = "idempotent(" in inspect.getsource(POSTS[route].post)
    assert told == kept == (route not in HARMLESS)


def test_every_harmless_post_exists():
    assert set(HARMLESS) <= set(POSTS)


@pytest.mark.parametrize("route", KEYED)
def test_no_post_without_its_key_has_an_effect(route: str, story: Story):
    api, path = story.alice.api, fill(route.split(" ")[1], rows_of(story))
    with undone():
        answer = api.generic("POST", path, json.dumps(BODIES.get(route, {})), content_type="application/json")
    assert 400 <= answer.status_code < 500
    if REST[route][0] == "2":  # the body is in order, so the key is all that is missing
        assert answer.json()["type"] == "urn:joynexus:problem:idempotency-key-required"


def lists(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """GETs that answer with rows, bare or as ``results``."""
    found = {}
    for path, methods in schema["paths"].items():
        content = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        answer = content.get("application/json", {}).get("schema", {})
        if "$ref" in answer:
            answer = schema["components"]["schemas"][answer["$ref"].rsplit("/", 1)[1]]
        if answer.get("type") == "array" or "results" in answer.get("properties", {}):
            found[path] = methods["get"]
    return found


def test_every_list_is_paged_by_cursor_or_is_declared_whole(schema: dict[str, Any]):
    paged = {
        path
        for path, operation in lists(schema).items()
        if {"cursor", "limit"} <= {item["name"] for item in operation.get("parameters", [])}
    }
    by_number = {
        path
        for path, operation in lists(schema).items()
        if {"after", "limit"} <= {item["name"] for item in operation.get("parameters", [])}
    }
    assert set(lists(schema)) - paged - by_number == set(WHOLE)
    assert len(paged) >= 12


def is_problem(answer: Any, status: int, path: str) -> bool:
    """Whether an answer has every member of a problem, of the right kind."""
    body = answer.json()
    members = {"type", "title", "status", "detail", "instance", "errors", "request_id"}
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM)
    assert members <= set(body), members - set(body)
    assert body["type"].startswith("urn:joynexus:problem:")
    assert (body["status"], body["instance"], body["request_id"]) == (status, path, answer["X-Request-ID"])
    assert all(set(error) == {"pointer", "code", "detail"} for error in body["errors"])
    assert body["detail"]
    return True


MEMBERS = "/api/v1/members"
REFUSED = [
    (400, "POST", "/api/v1/keys", {"data": "{", "content_type": "application/json"}),
    (404, "GET", "/api/v1/nothing-here", {}),
    (404, "GET", "/api/v2/jobs", {}),
    (404, "GET", "/api", {}),
    (404, "GET", "/api/v1/jobs/nonsense", {}),
    (404, "GET", "/api/v1/jobs/00000000-0000-0000-0000-000000000000", {}),
    (405, "PUT", MEMBERS, {"data": "{}", "content_type": "application/json"}),
    (405, "OPTIONS", MEMBERS, {}),
    (405, "ODD", MEMBERS, {}),
    (406, "GET", MEMBERS, {"headers": {"Accept": "text/html"}}),
    (415, "POST", "/api/v1/keys", {"data": "x", "content_type": "text/plain"}),
    (422, "POST", "/api/v1/keys", {"data": "{}", "content_type": "application/json"}),
    (422, "GET", MEMBERS + "?sort=name", {}),
]


@pytest.mark.parametrize(("status", "method", "path", "sent"), REFUSED)
def test_every_kind_of_refusal_is_a_whole_problem(
    status: int, method: str, path: str, sent: dict[str, Any], alice: Person
):
    assert is_problem(alice.api.generic(method, path, **sent), status, path.partition("?")[0])


def test_strangers_and_the_wrong_role_get_problems_too(story: Story, anonymous: Api):
    assert is_problem(anonymous.get(MEMBERS), 401, MEMBERS)
    assert is_problem(api_client("jnx_1_2").get(MEMBERS), 401, MEMBERS)
    assert is_problem(story.viewer.api.post(MEMBERS, {}), 403, MEMBERS)


def test_a_browser_without_its_token_gets_a_problem(alice: Person):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice.user)
    answer = browser.post(MEMBERS, "{}", content_type="application/json")
    assert is_problem(answer, 403, MEMBERS)


def test_a_host_that_is_not_ours_gets_a_problem(anonymous: Api):
    answer = anonymous.get("/api/v1/docs", headers={"Host": "evil.example.org"})
    assert is_problem(answer, 400, "/api/v1/docs")


def test_no_answer_of_the_api_is_html_but_its_reader(story: Story):
    ids = rows_of(story)
    for route in REST:
        if route.startswith("GET "):
            answer = story.alice.api.get(fill(route.split(" ")[1], ids))
            assert not answer.get("Content-Type", "").startswith("text/html"), route
