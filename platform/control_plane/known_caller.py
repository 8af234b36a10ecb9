"""ASGI: who sends a large body, asked before the body is read. Whether they may is decided later, by the view."""

import io
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from allauth.core.internal.sessionkit import get_session_user
from channels.db import database_sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from tenants.identity import CredentialRefused, actor_for_key


async def is_known(scope: Mapping[str, Any]) -> bool:
    """Whether the request shows a live API key or a live session, as `TenantMiddleware` would find it."""
    return await database_sync_to_async(_is_known)(scope)


def _is_known(scope: Mapping[str, Any]) -> bool:
    request = ASGIRequest(scope, io.BytesIO())  # type: ignore[arg-type]  # the stubs know the server's own scopes only
    header = request.headers.get("Authorization")
    if header is not None:
        try:
            actor_for_key(header.strip().partition(" ")[2].strip())
        except CredentialRefused:
            return False
        return True
    return _has_session(request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))


def _has_session(session_key: str) -> bool:
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return bool(session_key) and session.exists(session_key) and get_session_user(session) is not None
