"""Every refusal is problem+json."""

import pytest

from tests.support.story import Person, api_client


@pytest.mark.django_db
def test_an_unknown_route_under_api_is_a_problem():
    answer = api_client().get("/api/v1/nothing-here")
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert body["type"] == "urn:joynexus:problem:not-found"
    assert (body["title"], body["status"], body["instance"]) == ("Not Found", 404, "/api/v1/nothing-here")
    assert body["request_id"] == answer["X-Request-ID"]


def test_a_key_is_told_who_it_is(bob: Person):
    answer = bob.api.get("/api/v1/me")
    assert answer.status_code == 200, answer.json()
    assert answer.json()["tenant"]["name"] == "Alice's lab"
