"""PostgreSQL by `DATABASE_URL`, a broker by `REDIS_URL`, a state folder with a long name: nothing else changes."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from control_plane.supervisor.stack import valkey_binary
from tests.support.postgres import postgresql_running
from tests.support.stack import Stack, sft_spec, upload_demonstrations

PASSWORD = "not-for-any-log"
REQUESTS = 150


@contextmanager
def valkey_running(folder: Path) -> Iterator[str]:
    """The address of a broker on TCP that asks for a password."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD]
    server = subprocess.Popen([valkey_binary(), *options], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    with postgresql_running() as url:
        yield url


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Stack]:
    state = tmp_path_factory.mktemp("a state folder with blanks") / ("long-" * 20)
    state.mkdir()
    with valkey_running(state) as broker_url:
        platform = Stack(state, {"DATABASE_URL": database_url, "REDIS_URL": broker_url})
        platform.start()
        yield platform
        assert platform.stop() <= 5.0


def test_a_job_runs_on_real_servers_and_no_embedded_one_is_started(real: Stack, tmp_path: Path):
    client = real.client(real.lab("Real lab"))
    job = client.jobs.submit(sft_spec(upload_demonstrations(client, tmp_path), steps=20))
    job = client.jobs.wait(job["id"], timeout_s=120)
    assert (job["state"], job["step"]) == ("succeeded", 20), job
    (artifact,) = client.jobs.artifacts(job["id"])
    assert client.artifacts.download(artifact["id"], to=tmp_path / "adapter.zip").stat().st_size > 0
    assert "valkey started" not in real.log.read_text()
    assert not (real.state / "control-plane.sqlite3").exists()


def test_requests_leave_no_connection_of_the_database_behind(real: Stack, database_url: str):
    client = real.client(real.lab("Busy lab"))
    with psycopg.connect(database_url, autocommit=True) as books:
        before = _connections(books)
        for _ in range(REQUESTS):
            list(client.jobs.list())
        deadline_s = time.monotonic() + 10
        while _connections(books) > before + 3:  # the sweep and the relay have theirs now and then
            assert time.monotonic() < deadline_s, _connections(books)
            time.sleep(0.1)


def _connections(books: psycopg.Connection) -> int:
    row = books.execute("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL").fetchone()
    assert row is not None
    return int(row[0])


def test_no_secret_is_in_the_log(real: Stack):
    lab = real.lab("Quiet lab")
    real.client(lab).datasets.list()
    told = real.log.read_text()
    token = (real.state / "secrets" / "runtime-token").read_text()
    assert [secret for secret in (PASSWORD, token, lab["api_key"], lab["password"]) if secret in told] == []
