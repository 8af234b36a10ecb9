"""Making, listing and revoking API keys."""

import pytest

from tests.support.story import Person, Story, api_client


def test_a_key_is_shown_once_and_works(bob: Person):
    made = bob.api.post("/api/v1/keys", {"name": "cluster", "role": "viewer"}).json()
    assert made["key"].startswith(f"jnx_{made['prefix']}_")
    assert api_client(made["key"]).get("/api/v1/me").json()["tenant"]["role"] == "viewer"
    listed = {row["name"]: row for row in bob.api.get("/api/v1/keys").json()["results"]}
    assert "key" not in listed["cluster"]
    assert "secret_sha256" not in listed["cluster"]


@pytest.mark.parametrize("role", ["owner", "admin"])
def test_a_key_is_no_stronger_than_its_maker(bob: Person, role: str):
    assert bob.api.post("/api/v1/keys", {"name": "x", "role": role}).status_code == 403


def test_a_key_may_end_in_the_future_only(bob: Person):
    past = bob.api.post("/api/v1/keys", {"name": "x", "expires_at": "2020-01-01T00:00:00Z"})
    assert (past.status_code, past.json()["errors"][0]["pointer"]) == (422, "/expires_at")
    naive = bob.api.post("/api/v1/keys", {"name": "x", "expires_at": "2100-01-01T00:00:00"})
    assert (naive.status_code, naive.json()["errors"][0]["code"]) == (422, "timezone_aware")
    assert bob.api.post("/api/v1/keys", {"name": "x", "expires_at": "2100-01-01T00:00:00Z"}).status_code == 201


def test_a_revoked_key_stops_at_once_and_revoking_twice_is_the_same(bob: Person):
    made = bob.api.post("/api/v1/keys", {"name": "leaked"}).json()
    assert bob.api.delete(f"/api/v1/keys/{made['id']}").status_code == 204
    assert api_client(made["key"]).get("/api/v1/me").status_code == 401
    assert bob.api.delete(f"/api/v1/keys/{made['id']}").status_code == 204


def test_a_researcher_sees_and_revokes_own_keys_only(story: Story):
    names = {row["created_by"] for row in story.bob.api.get("/api/v1/keys").json()["results"]}
    assert names == {"bob@example.org"}
    assert story.bob.api.delete(f"/api/v1/keys/{story.alice.key_row.pk}").status_code == 404
    assert story.alice.api.delete(f"/api/v1/keys/{story.bob.key_row.pk}").status_code == 204
    assert story.bob.api.get("/api/v1/me").status_code == 401


def test_a_viewer_manages_no_keys(viewer: Person):
    assert viewer.api.get("/api/v1/keys").status_code == 403
    assert viewer.api.post("/api/v1/keys", {"name": "x", "role": "viewer"}).status_code == 403


def test_a_key_cannot_expire_at_a_moment_no_calendar_has(alice: Person):
    answer = alice.api.post("/api/v1/keys", {"name": "ci", "expires_at": "9999-12-31T23:59:59-23:00"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/expires_at"
