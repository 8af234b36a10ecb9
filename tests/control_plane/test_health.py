"""Is it alive, can it serve? Strangers learn yes or no, operators learn why."""

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from control_plane import health
from jobs.models import RuntimeSnapshot
from tests.support.factories import UserFactory


def test_healthz_needs_nothing_but_the_process():
    assert Client().get("/healthz").content == b"OK\n"


def seen(at: datetime | None = None) -> None:
    """The relay saw the runtime, just now if not said otherwise."""
    RuntimeSnapshot.objects.create(journal_id="j-1", status={}, seen_at=at or timezone.now())


@pytest.mark.django_db
def test_readyz_is_ok_with_database_migrations_broker_and_runtime():
    seen()
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.content) == (200, b"OK\n")


@pytest.mark.django_db
def test_readyz_tells_a_stranger_no_and_an_operator_why(monkeypatch):
    def gone() -> None:
        raise ConnectionError("valkey is gone")

    seen()
    monkeypatch.setitem(health.CHECKS, "broker", gone)
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"NOT READY\n")
    operator = Client()
    operator.force_login(UserFactory(is_staff=True))
    assert b"broker: ConnectionError: valkey is gone" in operator.get("/readyz").content


@pytest.mark.django_db
def test_readyz_misses_a_runtime_that_was_not_seen_for_a_minute_or_ever():
    assert Client().get("/readyz").status_code == 503
    seen(timezone.now() - timedelta(seconds=61))
    operator = Client()
    operator.force_login(UserFactory(is_staff=True))
    assert b"runtime: RuntimeError: the runtime was last seen 61 s ago" in operator.get("/readyz").content
    RuntimeSnapshot.objects.update(seen_at=timezone.now())
    assert operator.get("/readyz").content == b"OK\n"


def test_a_dead_broker_is_noticed_quickly(settings, monkeypatch):
    from celery import Celery

    unreachable = Celery(broker="redis+socket:///nowhere/valkey.sock")
    monkeypatch.setattr(health, "app", unreachable)
    with pytest.raises(Exception, match=r"nowhere|No such file"):
        health.check_broker()
