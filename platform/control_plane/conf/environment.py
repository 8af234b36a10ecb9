"""Every environment variable the control plane reads, in one place."""

import contextlib
import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

REPOSITORY = Path(__file__).resolve().parents[3]
_SOCKET_PATH_MAX = 100  # AF_UNIX addresses end at 107 bytes
_ENVIRONMENTS = ("development", "production")
_REDIS_SCHEMES = ("redis", "rediss", "unix")
# What libpq knows and a deployment may need; anything else in DATABASE_URL is refused, not dropped.
_POSTGRESQL_OPTIONS = (
    "application_name",
    "connect_timeout",
    "host",
    "options",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
)


def state_dir() -> Path:
    """The one folder everything embedded lives in (``JOYNEXUS_STATE``)."""
    path = Path(os.environ.get("JOYNEXUS_STATE") or REPOSITORY / ".state").resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def socket_dir() -> Path:
    """A 0700 folder for unix sockets: under the state folder, or a short one derived from it if that is too long."""
    path = state_dir() / "run"
    if len(str(path)) > _SOCKET_PATH_MAX - len("/runtime.sock"):
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        path = Path(tempfile.gettempdir()) / f"joynexus-{os.getuid()}-{digest}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    path.chmod(0o700)
    return path


def secret(name: str, make: Callable[[], str] = lambda: secrets.token_urlsafe(48)) -> str:
    """A secret of this installation, made once, readable by its owner only."""
    path = state_dir() / "secrets" / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(make())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # the first of several processes wins
        draft.unlink()
    return path.read_text()


def is_production() -> bool:
    """Whether ``JOYNEXUS_ENV`` says so. A misspelt value must not silently mean development."""
    name = os.environ.get("JOYNEXUS_ENV") or "development"
    if name not in _ENVIRONMENTS:
        raise RuntimeError(f"JOYNEXUS_ENV: {name!r} is unknown; allowed: {', '.join(_ENVIRONMENTS)}")
    return name == "production"


def whole_number(name: str, default: int) -> int:
    """A positive whole number out of the environment."""
    text = os.environ.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise RuntimeError(f"{name}: {text!r} is no whole number; allowed: 1 and up")
    return int(text)


def secret_key() -> str:
    key = os.environ.get("DJANGO_SECRET_KEY")
    if key or not is_production():
        return key or secret("django-secret-key")
    raise RuntimeError("DJANGO_SECRET_KEY is required when JOYNEXUS_ENV=production")


def allowed_hosts() -> list[str]:
    return [host for host in os.environ.get("JOYNEXUS_HOSTS", "localhost,127.0.0.1,[::1]").split(",") if host]


def trusted_origins() -> list[str]:
    return [origin for origin in os.environ.get("JOYNEXUS_ORIGINS", "").split(",") if origin]


def database() -> dict[str, Any]:
    """PostgreSQL by ``DATABASE_URL``, else SQLite in the state folder.

    SQLite: WAL and IMMEDIATE transactions; deferred ones fail with "database is locked" on read-then-write.
    """
    url = os.environ.get("DATABASE_URL")
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(state_dir() / "control-plane.sqlite3"),
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA foreign_keys=ON;",
            },
        }
    return _postgresql(url)


def _postgresql(url: str) -> dict[str, Any]:
    """A ``postgres://`` URL as Django's settings.

    No connection outlives its request: the ASGI server gives every request a thread of its own, which would leave
    an open connection behind.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise RuntimeError(f"DATABASE_URL: {parts.scheme!r} is not supported; allowed: postgres, postgresql")
    options = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))  # libpq: a plus is a plus
    if unknown := sorted(set(options) - set(_POSTGRESQL_OPTIONS)):
        raise RuntimeError(f"DATABASE_URL: unknown option {unknown[0]!r}; allowed: {', '.join(_POSTGRESQL_OPTIONS)}")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", unquote(parts.hostname or "")),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": options,
    }


def broker_url() -> str:
    """For Celery: ``REDIS_URL`` or the embedded valkey's socket."""
    url = channel_host()
    return url.replace("unix://", "redis+socket://", 1).replace("?db=", "?virtual_host=") if _is_socket(url) else url


def channel_host() -> str:
    """For Channels: ``REDIS_URL`` or the embedded valkey's socket.

    Allowed are ``redis://``, ``rediss://`` and ``unix://[USER:PASSWORD@]/PATH[?db=N]``.
    """
    url = os.environ.get("REDIS_URL")
    if not url:
        return f"unix://{socket_dir() / 'valkey.sock'}"
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _REDIS_SCHEMES:
        raise RuntimeError(f"REDIS_URL: {scheme!r} is not supported; allowed: {', '.join(_REDIS_SCHEMES)}")
    if _is_socket(url) and set(dict(parse_qsl(urlsplit(url).query))) - {"db"}:
        raise RuntimeError("REDIS_URL: allowed for a socket: unix://[USER:PASSWORD@]/PATH[?db=N]")
    return url


def _is_socket(url: str) -> bool:
    return url.startswith("unix://")


def runtime_url() -> str:
    """Where the runtime's gateway listens: ``JOYNEXUS_RUNTIME_URL`` or the embedded unix socket."""
    return os.environ.get("JOYNEXUS_RUNTIME_URL") or f"unix://{socket_dir() / 'runtime.sock'}"


def runtime_token() -> str:
    return os.environ.get("JOYNEXUS_RUNTIME_TOKEN") or secret("runtime-token")


def dataset_root() -> Path:
    """Dataset versions by storage key; shared with the runtime (``JOYNEXUS_DATASETS``)."""
    path = Path(os.environ.get("JOYNEXUS_DATASETS") or state_dir() / "datasets").resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path
