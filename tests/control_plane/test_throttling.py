"""Request rates: who is counted together, what is told, what is refused, and what a dead cache costs."""

import logging

import pytest
import time_machine
from django.core.cache import cache
from django.test import Client
from redis.exceptions import ConnectionError as CacheAway

from control_plane import throttling
from control_plane.throttling import Counter, Policy
from tenants.quotas.models import Quota, Resource
from tenants.scope import platform_scope
from tests.support.factories import make_key
from tests.support.jobs import make_job
from tests.support.story import Person, Story, api_client

ME = "/api/v1/me"


def limit(person: Person, requests: int) -> None:
    with platform_scope():
        Quota.objects.create(tenant=person.tenant, resource=Resource.REQUESTS_PER_MINUTE, limit=requests)


@pytest.fixture(autouse=True)
def at_noon():
    with time_machine.travel("2026-05-01 12:00:10+00:00", tick=False) as clock:
        yield clock


def test_every_answer_tells_limit_rest_and_reset(alice: Person):
    limit(alice, 10)
    answer = alice.api.get(ME)
    assert answer["RateLimit-Policy"] == '"tenant";q=10;w=60, "key";q=5;w=60'
    assert answer["RateLimit"] == '"tenant";r=9;t=50, "key";r=4;t=50'
    assert alice.api.get("/api/v1/nothing-here")["RateLimit"] == '"tenant";r=8;t=50, "key";r=3;t=50'


def test_beyond_the_limit_is_a_429_problem_until_the_minute_is_over(alice: Person, at_noon):
    limit(alice, 6)
    assert [alice.api.get(ME).status_code for _ in range(4)] == [200, 200, 200, 429]
    answer = alice.api.get(ME)
    assert (answer["Content-Type"], answer["Retry-After"]) == ("application/problem+json", "50")
    body = answer.json()
    assert body["type"] == "urn:joynexus:problem:too-many-requests"
    assert (body["title"], body["status"], body["instance"]) == ("Too Many Requests", 429, ME)
    assert body["request_id"] == answer["X-Request-ID"]
    at_noon.shift(49)
    assert alice.api.get(ME)["Retry-After"] == "1"
    at_noon.shift(1)
    assert alice.api.get(ME).status_code == 200


def test_a_tenants_keys_share_its_limit_and_another_tenant_has_its_own(story: Story):
    limit(story.alice, 4)
    _, third = make_key(story.alice.tenant, "owner", story.alice.user)
    statuses = [person.api.get(ME).status_code for person in (story.alice, story.alice, story.bob, story.bob)]
    assert statuses == [200] * 4
    answer = api_client(third).get(ME)
    assert answer.status_code == 429
    assert "(tenant)" in answer.json()["detail"]
    assert story.charlie.api.get(ME).status_code == 200


def test_one_key_leaves_half_to_the_others(story: Story):
    limit(story.alice, 8)
    statuses = [story.bob.api.get(ME).status_code for _ in range(20)]
    assert statuses == [200] * 4 + [429] * 16
    assert "(key)" in story.bob.api.get(ME).json()["detail"]
    assert [story.alice.api.get(ME).status_code for _ in range(5)] == [200] * 4 + [429]


def test_a_session_counts_for_its_tenant(alice: Person):
    limit(alice, 2)
    browser = alice.browser()
    assert [browser.get(ME).status_code for _ in range(3)] == [200, 200, 429]
    assert browser.get("/login/").status_code != 429


def test_a_raised_limit_counts_at_once(alice: Person, at_noon):
    limit(alice, 2)
    assert [alice.api.get(ME).status_code for _ in range(2)] == [200, 429]
    at_noon.shift(1)
    limit(alice, 100)
    assert alice.api.get(ME).status_code == 200


def test_strangers_are_counted_by_address_and_a_wrong_key_makes_a_stranger(story: Story, monkeypatch):
    monkeypatch.setattr(throttling, "STRANGER_LIMIT", 3)
    wrong = api_client("jnx_000000000000_" + "0" * 64)
    assert [api_client().get(ME).status_code, wrong.get(ME).status_code, wrong.get(ME).status_code] == [401] * 3
    assert wrong.get(ME).status_code == api_client().get(ME).status_code == 429
    assert Client(REMOTE_ADDR="10.0.0.9").get(ME).status_code == 401
    assert story.alice.api.get(ME).status_code == 200
    assert "127.0.0.1" not in str(cache._cache)


def test_whoever_has_used_up_their_requests_can_still_stop_a_job(alice: Person):
    job = make_job(alice)
    limit(alice, 2)
    assert [alice.api.get(ME).status_code for _ in range(2)] == [200, 429]
    answer = alice.api.post(f"/api/v1/jobs/{job.pk}/cancel", {})
    assert answer.status_code == 202
    assert answer["RateLimit-Policy"].startswith('"stop-tenant"')


@pytest.mark.django_db
def test_health_and_pages_are_not_limited(monkeypatch):
    monkeypatch.setattr(throttling, "STRANGER_LIMIT", 0)
    for path in ("/healthz", "/readyz", "/login/"):
        answer = Client().get(path)
        assert answer.status_code != 429, path
        assert "RateLimit" not in answer


def test_a_dead_cache_lets_everything_through_and_is_logged_once_a_minute(alice: Person, monkeypatch, caplog):
    now_s, asked = [0.0], []

    def dead(*args, **kwargs):
        asked.append(now_s[0])
        raise CacheAway("valkey is gone")

    monkeypatch.setattr(cache, "add", dead)
    monkeypatch.setattr(throttling, "COUNTER", Counter(clock_s=lambda: now_s[0]))
    limit(alice, 1)
    with caplog.at_level(logging.ERROR, "control_plane.throttling"):
        for moment in range(0, 120, 2):
            now_s[0] = float(moment)
            answer = alice.api.get(ME)
            assert answer.status_code == 200
            assert "RateLimit" not in answer
    assert len(caplog.records) == 2
    assert "valkey is gone" in caplog.text
    assert len(asked) == 20  # it is left alone for five seconds after each failure


def test_counts_of_different_policies_do_not_mix():
    cache.clear()
    counter = Counter()
    one, other = (Policy(name=name, whose="7", limit=9) for name in ("tenant", "key"))
    assert [standing.used for standing in counter.count([one, other]) or []] == [1, 1]
    assert [standing.used for standing in counter.count([one]) or []] == [2]
