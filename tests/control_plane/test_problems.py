"""Every refusal is problem+json, names what is wrong, and tells nothing else."""

import json
import logging
from typing import Any

import pytest
from django.test import Client

from control_plane.logs import RequestIdFilter, request_id_now
from tenants.selectors import member_list
from tests.support.story import Person, api_client

PROBLEM = "application/problem+json"


@pytest.mark.django_db
def test_an_unknown_route_under_api_is_a_problem():
    answer = api_client().get("/api/v1/nothing-here")
    assert (answer.status_code, answer["Content-Type"]) == (404, PROBLEM)
    body = answer.json()
    assert body["type"] == "urn:joynexus:problem:not-found"
    assert (body["title"], body["status"], body["instance"]) == ("Not Found", 404, "/api/v1/nothing-here")
    assert body["request_id"] == answer["X-Request-ID"]


@pytest.mark.django_db
def test_an_unknown_page_outside_the_api_is_html():
    assert Client().get("/nothing-here")["Content-Type"].startswith("text/html")


def test_no_credentials_is_401_and_says_how_to_ask(anonymous):
    answer = anonymous.get("/api/v1/me")
    assert (answer.status_code, answer["Content-Type"]) == (401, PROBLEM)
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert answer.json()["type"] == "urn:joynexus:problem:not-authenticated"


def test_a_tame_request_id_is_kept_and_a_wild_one_replaced(bob: Person):
    assert bob.api.get("/api/v1/me", headers={"X-Request-ID": "trace-12345678"})["X-Request-ID"] == "trace-12345678"
    assert bob.api.get("/api/v1/me", headers={"X-Request-ID": "a\tb <script>"})["X-Request-ID"] != "a\tb <script>"


def test_malformed_json_is_a_400_problem(alice: Person):
    answer = alice.api.post("/api/v1/keys", "{nope", content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (400, PROBLEM)
    assert answer.json()["type"] == "urn:joynexus:problem:parse-error"


def test_a_wrong_media_type_and_a_wrong_method_are_problems(alice: Person):
    assert alice.api.post("/api/v1/keys", b"x", content_type="text/plain").status_code == 415
    answer = alice.api.put("/api/v1/keys", {})
    assert (answer.status_code, answer["Content-Type"]) == (405, PROBLEM)


def test_an_unknown_field_is_refused_by_name_with_what_is_allowed(alice: Person):
    answer = alice.api.post("/api/v1/keys", {"name": "ci", "colour": "red"})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {
            "pointer": "/colour",
            "code": "extra_forbidden",
            "detail": "Unknown field 'colour'. Allowed: name, role, scopes, project, spend_cap, expires_at.",
        }
    ]


def test_a_wrong_value_is_shown_with_what_is_allowed(alice: Person):
    error = alice.api.post("/api/v1/keys", {"name": "ci", "role": "king"}).json()["errors"][0]
    assert error["pointer"] == "/role"
    assert "'king'" in error["detail"]
    assert "'owner'" in error["detail"]


def test_every_problem_of_a_body_is_reported_at_once(alice: Person):
    errors = alice.api.post("/api/v1/members", {"email": "nonsense", "role": "king"}).json()["errors"]
    assert [error["pointer"] for error in errors] == ["/email", "/role"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=many", "sort=name", "format=json", "limit=1&limit=2"]
)
def test_no_query_parameter_is_silently_ignored(alice: Person, query: str):
    answer = alice.api.get(f"/api/v1/members?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "?" + query.split("=")[0]


def test_a_fault_of_ours_tells_nothing_but_the_request_id(alice: Person, monkeypatch, caplog):
    def explode(actor: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("tenants.api.members.member_list", explode)
    answer = alice.api.get("/api/v1/members")
    assert (answer.status_code, answer["Content-Type"]) == (500, PROBLEM)
    assert b"secret detail" not in answer.content
    assert b"Traceback" not in answer.content
    assert answer.json()["request_id"] == answer["X-Request-ID"]
    assert "secret detail" in caplog.text


def test_lists_are_walked_by_cursor(alice: Person):
    first = alice.api.get("/api/v1/members?limit=2").json()
    second = alice.api.get(first["next"]).json()
    emails = [row["email"] for row in first["results"] + second["results"]]
    assert sorted(emails) == ["alice@example.org", "bob@example.org", "vera@example.org"]
    assert second["next"] is None


@pytest.mark.parametrize("path", ["members/" + "9" * 30, "datasets/nonsense", "keys/7"])
def test_ids_that_cannot_exist_are_404(alice: Person, path: str):
    assert alice.api.delete(f"/api/v1/{path}").status_code == 404


@pytest.mark.parametrize("body", [[], "text", 7, None, {"name": "a\0b"}, {"name": {"deep": [1]}}])
def test_a_body_of_another_shape_is_a_422(alice: Person, body: object):
    answer = alice.api.post("/api/v1/keys", json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (422, PROBLEM)


def test_log_lines_carry_the_id_of_their_request(alice: Person, monkeypatch):
    seen: list[str] = []

    def note(actor: object) -> Any:
        record = logging.LogRecord("tests", logging.INFO, __file__, 1, "hello", None, None)
        assert RequestIdFilter().filter(record)
        seen.append(record.request_id)
        return member_list(actor)

    monkeypatch.setattr("tenants.api.members.member_list", note)
    answer = alice.api.get("/api/v1/members")
    assert seen == [answer["X-Request-ID"]]
    assert request_id_now.get() == "-"


@pytest.mark.parametrize("route", ["jobs", "keys", "members"])
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"name": "half \\ud800 a pair"}', 422),
        ('{"name": 1e999}', 422),
        ('{"name": ' + "[" * 100 + "]" * 100 + "}", 422),
        ("[" * 100_000, 400),
        ('{"name": NaN}', 400),
        ('{"name": "a", "name": "b"}', 400),
        ('{"name": ' + "9" * 5000 + "}", 400),
    ],
)
def test_json_that_cannot_be_stored_or_hashed_is_refused_never_a_fault(
    alice: Person, route: str, text: str, status: int
):
    answer = alice.api.post(f"/api/v1/{route}", text, content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM)
    if status == 422:
        assert answer.json()["errors"][0]["pointer"].startswith("/name")


@pytest.mark.parametrize("cursor", ["nonsense", "cD1mb28=", "cD0wMDAxLTAxLTAxIDAwOjAwOjAwKzIzOjAw"])
def test_a_cursor_no_answer_ever_contained_is_refused(alice: Person, cursor: str):
    answer = alice.api.get("/api/v1/jobs", {"cursor": cursor})
    assert answer.status_code == 422
    assert [(e["pointer"], e["code"]) for e in answer.json()["errors"]] == [("?cursor", "cursor_invalid")]
