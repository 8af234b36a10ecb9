"""The cache of counters goes on without its server, and comes back to it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from control_plane.conf import cache as lasting
from control_plane.conf.cache import LastingCache
from tests.jobs.test_live_valkey import Valkey


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    running = Valkey(tmp_path_factory.mktemp("v"))
    yield running
    running.kill()


@pytest.fixture(autouse=True)
def _no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting._Outage, "until_s", float("-inf"))


def cache_at(server: Valkey) -> LastingCache:
    params: dict[str, Any] = {"OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5}}
    return LastingCache(f"unix://{server.socket}", params)


def start(server: Valkey) -> None:
    server.start()
    asyncio.run(server.ready())


def test_counts_are_shared_while_the_server_is_there(server: Valkey):
    start(server)
    one, other = cache_at(server), cache_at(server)
    assert one.add("tries", 1, timeout=60)
    assert not other.add("tries", 1, timeout=60)
    assert other.incr("tries") == 2
    assert one.get("tries") == 2


def test_without_the_server_every_verb_counts_on_in_memory(server: Valkey):
    cache = cache_at(server)
    assert cache.add("tries", 1, timeout=60)
    assert not cache.add("tries", 1, timeout=60)
    assert cache.incr("tries") == 2
    assert cache.touch("tries", 60)
    assert "tries" in cache
    cache.set("tries", [1, 2])
    assert cache.get("tries") == [1, 2]
    assert cache.delete("tries")
    assert cache.get("tries", "none") == "none"


def test_a_server_that_is_away_is_left_alone_for_a_while_and_then_asked_again(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr(lasting, "clock_s", lambda: now[0])
    cache = cache_at(server)
    cache.set("tries", "in memory")
    start(server)
    assert cache.get("tries") == "in memory"  # within the pause
    now[0] += lasting._LEAVE_ALONE_S
    assert cache.get("tries") is None  # the server's answer
    cache.set("tries", "shared")
    assert cache_at(server).get("tries") == "shared"
