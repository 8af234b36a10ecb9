"""Every route of the API as the URL configuration has it, so that none can be forgotten."""

from collections.abc import Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

METHODS = ("get", "post", "put", "patch", "delete")


def api_routes() -> list[str]:
    """`METHOD /api/v1/...` of every method every API view handles, parameters as `<type:name>`."""
    return sorted(
        f"{method.upper()} {path}" for path, view in api_views() for method in METHODS if hasattr(view, method)
    )


def api_views() -> list[tuple[str, Any]]:
    """(path, view class) of everything under /api/."""
    return [(path, view) for path, view in _walk(get_resolver().url_patterns, "/") if path.startswith("/api/")]


def _walk(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern):
            yield path, getattr(pattern.callback, "cls", None) or getattr(pattern.callback, "view_class", None)
