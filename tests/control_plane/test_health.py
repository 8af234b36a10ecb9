"""Is it alive, can it serve? Strangers learn yes or no, operators learn why."""

import pytest
from django.test import Client

from control_plane import health
from tests.support.factories import UserFactory


def test_healthz_needs_nothing_but_the_process():
    assert Client().get("/healthz").content == b"OK\n"


@pytest.mark.django_db
def test_readyz_is_ok_with_database_migrations_and_broker():
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.content) == (200, b"OK\n")


@pytest.mark.django_db
def test_readyz_tells_a_stranger_no_and_an_operator_why(monkeypatch):
    def gone() -> None:
        raise ConnectionError("valkey is gone")

    monkeypatch.setitem(health.CHECKS, "broker", gone)
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.content) == (503, b"NOT READY\n")
    operator = Client()
    operator.force_login(UserFactory(is_staff=True))
    assert b"broker: ConnectionError: valkey is gone" in operator.get("/readyz").content


def test_a_dead_broker_is_noticed_quickly(settings, monkeypatch):
    from celery import Celery

    unreachable = Celery(broker="redis+socket:///nowhere/valkey.sock")
    monkeypatch.setattr(health, "app", unreachable)
    with pytest.raises(Exception, match=r"nowhere|No such file"):
        health.check_broker()
