"""Where letters go: to an SMTP server by ``JOYNEXUS_SMTP_URL``, else into files of the state folder."""

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from control_plane.conf.environment import state_dir

_SCHEMES = {"smtp": 25, "smtp+tls": 587, "smtps": 465}  # plain, STARTTLS, TLS from the first byte; their ports
_TIMEOUT_S = 10


def mail_settings() -> dict[str, Any]:
    """Django's settings of a ``smtp+tls://USER:PASSWORD@HOST:PORT``. Raises RuntimeError for any other scheme."""
    sender = {"DEFAULT_FROM_EMAIL": os.environ.get("JOYNEXUS_MAIL_FROM") or "JoyNexus <joynexus@localhost>"}
    url = os.environ.get("JOYNEXUS_SMTP_URL")
    if not url:
        backend = "django.core.mail.backends.filebased.EmailBackend"
        return sender | {"EMAIL_BACKEND": backend, "EMAIL_FILE_PATH": str(state_dir() / "mail")}
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise RuntimeError(f"JOYNEXUS_SMTP_URL: {parts.scheme!r} is not supported; allowed: {', '.join(_SCHEMES)}")
    return sender | {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or _SCHEMES[parts.scheme],
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_TIMEOUT": _TIMEOUT_S,
    }
