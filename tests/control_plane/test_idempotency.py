"""`Idempotency-Key`: one effect per key, whatever is repeated, raced or refused."""

import threading

import pytest
import time_machine
from django.db import connection

from tenants.models import ApiKey, IdempotencyRecord
from tenants.scope import platform_scope
from tenants.tasks import purge_idempotency
from tests.support.story import Person, Story, make_story

BODY = {"name": "ci"}


def create(person: Person, key: str = "k-1", body: dict[str, str] = BODY):
    return person.api.post("/api/v1/keys", body, headers={"Idempotency-Key": key})


def keys_named(name: str = "ci") -> int:
    with platform_scope():
        return ApiKey.objects.filter(name=name).count()


@pytest.mark.parametrize("key", ["", "x" * 201, "tab\there"])
def test_a_creating_post_needs_a_printable_key(bob: Person, key: str):
    assert create(bob, key).status_code == 400
    assert keys_named() == 0


def test_a_repeat_gets_the_first_answer_and_has_no_effect(bob: Person):
    first, again = create(bob), create(bob)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first
    assert again.json() == {**first.json(), "key": None}
    assert keys_named() == 1


def test_a_secret_shown_once_is_not_kept_for_replays(bob: Person):
    secret = create(bob).json()["key"]
    with platform_scope():
        assert secret.split("_")[2] not in str(IdempotencyRecord.objects.get().response)


def test_the_same_key_with_another_body_is_refused(bob: Person):
    create(bob)
    answer = create(bob, body={"name": "other"})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:joynexus:problem:idempotency-key-reused")
    assert keys_named("other") == 0


def test_a_refused_request_leaves_the_key_free(bob: Person):
    assert create(bob, body={"name": "ci", "role": "owner"}).status_code == 403
    assert create(bob).status_code == 201


def test_the_same_key_in_two_tenants_and_on_two_routes_is_independent(story: Story):
    assert create(story.alice).status_code == create(story.charlie).status_code == 201
    assert keys_named() == 2
    answer = story.alice.api.post(
        "/api/v1/members", {"email": "charlie@example.org", "role": "viewer"}, headers={"Idempotency-Key": "k-1"}
    )
    assert answer.status_code == 201


def test_an_answer_is_kept_for_a_day(bob: Person):
    with time_machine.travel("2026-05-01 12:00:00+00:00", tick=False) as clock:
        create(bob)
        clock.shift(24 * 3600 - 1)
        assert "Idempotent-Replayed" in create(bob)
        assert purge_idempotency() == 0
        clock.shift(2)
        assert "Idempotent-Replayed" not in create(bob)
        clock.shift(24 * 3600 + 1)
        assert purge_idempotency() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_racing_requests_one_takes_effect_and_both_get_its_answer():
    bob = make_story().bob
    start, answers = threading.Barrier(4), []

    def send() -> None:
        start.wait()
        try:
            answers.append(create(bob))
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" in answer for answer in answers) == 3
    assert keys_named() == 1
