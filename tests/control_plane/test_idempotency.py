"""`Idempotency-Key`: one effect per key, whatever is repeated, raced or refused."""

import threading
import time
import uuid
from typing import Any

import pytest
import time_machine
from django.db import connection

from gpu_runtime.protocol.base import fingerprint
from tenants.api import keys as keys_api
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


def test_a_repeat_while_the_first_is_under_way_is_told_to_come_again(bob: Person):
    with platform_scope():
        record = start_of(bob)
    answer = create(bob)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:joynexus:problem:request-in-progress")
    assert answer["Retry-After"] == "1"
    assert create(bob, body={"name": "other"}).status_code == 422
    assert keys_named() == 0
    with platform_scope():
        record.refresh_from_db()
        assert record.status == 0


def start_of(person: Person) -> IdempotencyRecord:
    """What a request leaves whose process was killed before it answered."""
    return IdempotencyRecord.objects.create(
        tenant=person.tenant, key="k-1", route="POST /api/v1/keys", body_sha256=fingerprint(BODY), status=0
    )


def test_a_claim_of_a_killed_process_is_taken_over_after_two_minutes(bob: Person):
    with time_machine.travel("2026-05-01 12:00:00+00:00", tick=False) as clock, platform_scope():
        start_of(bob)
        clock.shift(119)
        assert create(bob).status_code == 409
        clock.shift(2)
        assert create(bob).status_code == 201
        assert "Idempotent-Replayed" in create(bob)
    assert keys_named() == 1


def test_a_request_whose_claim_was_taken_over_is_rolled_back(bob: Person, monkeypatch):
    original = keys_api.services.key_create

    def slow(**fields):
        IdempotencyRecord.objects.update(claim=uuid.uuid4())  # somebody took over while this one slept
        return original(**fields)

    monkeypatch.setattr(keys_api.services, "key_create", slow)
    assert create(bob).status_code == 409
    assert keys_named() == 0


def test_a_fault_gives_the_key_back(bob: Person, monkeypatch):
    def explode(**fields):
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(keys_api.services, "key_create", explode)
        assert create(bob).status_code == 500
    assert create(bob).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_while_the_first_holds_the_database_a_repeat_is_answered_at_once(monkeypatch):
    bob = make_story().bob
    original, inside, go_on = keys_api.services.key_create, threading.Event(), threading.Event()

    def slow(**fields):
        issued = original(**fields)  # on SQLite the write lock is held from here on
        inside.set()
        assert go_on.wait(10)
        return issued

    monkeypatch.setattr(keys_api.services, "key_create", slow)
    first: list[Any] = []
    thread = threading.Thread(target=lambda: (first.append(create(bob)), connection.close()))
    thread.start()
    assert inside.wait(10)
    began_s = time.monotonic()
    answer = create(bob)
    took_s = time.monotonic() - began_s
    go_on.set()
    thread.join()
    assert (answer.status_code, answer["Retry-After"]) == (409, "1")
    assert took_s < 2
    assert first[0].status_code == 201
    assert create(bob).json()["id"] == first[0].json()["id"]
    assert keys_named() == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_racing_requests_one_takes_effect_and_all_get_its_answer_in_the_end():
    bob = make_story().bob
    start, answers = threading.Barrier(8), []

    def send() -> None:
        start.wait()
        try:
            for _ in range(200):
                answer = create(bob)
                if answer.status_code != 409:
                    break
                time.sleep(0.02)
            answers.append(answer)
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [201] * 8
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" in answer for answer in answers) == 7
    assert keys_named() == 1
