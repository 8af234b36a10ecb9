"""Every environment variable the control plane reads, in one place."""

import contextlib
import hashlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

REPOSITORY = Path(__file__).resolve().parents[3]
_SOCKET_PATH_MAX = 100  # AF_UNIX addresses end at 107 bytes


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


def secret(name: str) -> str:
    """A secret of this installation, made once, readable by its owner only."""
    path = state_dir() / "secrets" / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # the first of several processes wins
        draft.unlink()
    return path.read_text()


def is_production() -> bool:
    return os.environ.get("JOYNEXUS_ENV", "development") == "production"


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
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise RuntimeError(f"DATABASE_URL: {parts.scheme!r} is not supported; allowed: postgres, postgresql")
    query = dict(item.split("=", 1) for item in parts.query.split("&") if "=" in item)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(query.get("host", parts.hostname or "")),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }


def broker_url() -> str:
    """For Celery: ``REDIS_URL`` or the embedded valkey's socket."""
    return os.environ.get("REDIS_URL") or f"redis+socket://{socket_dir() / 'valkey.sock'}"


def channel_host() -> str:
    """For Channels: ``REDIS_URL`` or the embedded valkey's socket."""
    return os.environ.get("REDIS_URL") or f"unix://{socket_dir() / 'valkey.sock'}"


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
