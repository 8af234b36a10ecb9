"""The environment variables: real servers by address, and no misspelt value that silently means something else."""

from collections.abc import Callable

import pytest
from cryptography.fernet import Fernet

from control_plane.conf import environment as env
from control_plane.conf import outside

URL = "postgresql://a%40b:p%2Fw@db.example:6543/joynexus"


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch):
    def read(url: str) -> dict:
        monkeypatch.setenv("DATABASE_URL", url)
        return env.database()

    return read


def test_a_postgresql_address_is_read_whole(database):
    told = database(URL + "?sslmode=verify-full&sslrootcert=/etc/ca+1.pem&connect_timeout=5")
    assert (told["USER"], told["PASSWORD"]) == ("a@b", "p/w")
    assert (told["HOST"], told["PORT"], told["NAME"]) == ("db.example", "6543", "joynexus")
    assert told["OPTIONS"] == {"sslmode": "verify-full", "sslrootcert": "/etc/ca+1.pem", "connect_timeout": "5"}


def test_a_socket_folder_stands_for_the_host(database):
    told = database("postgres://me:@/db?host=/run/pg")
    assert (told["HOST"], told["PORT"], told["OPTIONS"]) == ("/run/pg", "", {})


def test_no_connection_outlives_its_request(database):
    assert database(URL)["CONN_MAX_AGE"] == 0


@pytest.mark.parametrize(("url", "word"), [(URL + "?ssl=1", "'ssl'"), ("mysql://db/x", "'mysql'"), ("db", "postgres")])
def test_a_database_address_that_is_not_understood_is_refused(database, url: str, word: str):
    with pytest.raises(RuntimeError, match=word):
        database(url)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://:pw@cache:6379/1", "redis://:pw@cache:6379/1"),
        ("rediss://cache:6379/0", "rediss://cache:6379/0"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock"),
        ("unix://:pw@/run/valkey.sock?db=2", "redis+socket://:pw@/run/valkey.sock?virtual_host=2"),
    ],
)
def test_one_redis_address_serves_celery_and_channels(monkeypatch: pytest.MonkeyPatch, url: str, broker: str):
    monkeypatch.setenv("REDIS_URL", url)
    assert (env.channel_host(), env.broker_url()) == (url, broker)


@pytest.mark.parametrize("url", ["amqp://cache", "localhost:6379", "redis+socket:///x", "unix:///x?password=pw"])
def test_another_broker_is_refused_with_what_is_allowed(monkeypatch: pytest.MonkeyPatch, url: str):
    monkeypatch.setenv("REDIS_URL", url)
    with pytest.raises(RuntimeError, match=r"allowed.*unix"):
        env.broker_url()


def test_a_misspelt_environment_is_not_development(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JOYNEXUS_ENV", "prod")
    with pytest.raises(RuntimeError, match="'prod' is unknown; allowed: development, production"):
        env.is_production()


@pytest.mark.parametrize("text", ["0", "-1", "8 GiB", "1e9"])
def test_a_limit_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setenv("JOYNEXUS_UPLOAD_MAX_BYTES", text)
    with pytest.raises(RuntimeError, match="JOYNEXUS_UPLOAD_MAX_BYTES"):
        env.whole_number("JOYNEXUS_UPLOAD_MAX_BYTES", 1)


def test_a_long_state_folder_gets_a_short_private_place_for_its_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("JOYNEXUS_STATE", str(tmp_path / ("long" * 40)))
    folder = env.socket_dir()
    try:
        assert len(str(folder / "runtime.sock")) <= 107
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder == env.socket_dir()
    finally:
        folder.rmdir()


@pytest.mark.parametrize(
    ("name", "value", "read", "said"),
    [
        ("JOYNEXUS_WEBHOOK_ALLOW", "10.0.0.0/33", lambda: outside.networks("JOYNEXUS_WEBHOOK_ALLOW"), "10.0.0.0/33"),
        ("JOYNEXUS_METRICS_ALLOW", "localhost", lambda: outside.networks("JOYNEXUS_METRICS_ALLOW"), "localhost"),
        ("JOYNEXUS_WEBHOOK_PORTS", "443,0", outside.webhook_ports, "443,0"),
        ("JOYNEXUS_WEBHOOK_PORTS", "https", outside.webhook_ports, "https"),
        ("JOYNEXUS_WEBHOOK_KEYS", "too-short", outside.webhook_keys, "no Fernet key"),
        ("JOYNEXUS_WEBHOOK_CA_FILE", "/nowhere.pem", outside.webhook_ca_file, "/nowhere.pem"),
    ],
)
def test_a_setting_of_the_outside_world_that_is_not_understood_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, read: Callable[[], object], said: str
):
    monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=said):
        read()


def test_the_webhooks_first_key_is_made_once_and_a_ring_is_read_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("JOYNEXUS_STATE", str(tmp_path))
    made = outside.webhook_keys()
    assert outside.webhook_keys() == made
    assert (tmp_path / "secrets" / "webhook-keys").stat().st_mode & 0o077 == 0
    fresh = Fernet.generate_key().decode()
    monkeypatch.setenv("JOYNEXUS_WEBHOOK_KEYS", f"{fresh}, {made[0]}")
    assert outside.webhook_keys() == [fresh, *made]
