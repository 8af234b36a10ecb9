"""Every route there is, as the URL configuration and the WebSocket routing have it, so that none can be forgotten."""

import re
from collections.abc import Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

METHODS = ("get", "post", "put", "patch", "delete")
API, ADMIN = "/api/", "/admin/"


def api_routes(urlconf: Any = None) -> list[str]:
    """`METHOD /api/v1/...` of every method every API view handles, parameters as `<type:name>`."""
    return sorted(
        f"{method.upper()} {path}" for path, view in api_views(urlconf) for method in METHODS if hasattr(view, method)
    )


def api_views(urlconf: Any = None) -> list[tuple[str, Any]]:
    """(path, view class) of everything under /api/."""
    return [(path, _class_of(pattern)) for path, pattern in _all(urlconf) if path.startswith(API)]


def page_routes(urlconf: Any = None) -> list[str]:
    """Paths of everything that is neither API nor admin."""
    return sorted({path for path, _ in _all(urlconf) if not path.startswith((API, ADMIN))})


def admin_routes(urlconf: Any = None) -> list[str]:
    """Paths of everything under /admin/."""
    return sorted({path for path, _ in _all(urlconf) if path.startswith(ADMIN)})


def websocket_routes() -> list[str]:
    from control_plane.live.routing import websocket_urlpatterns

    return [f"/{pattern.pattern}" for pattern in websocket_urlpatterns]


def undeclared_permissions(public: set[str], urlconf: Any = None) -> list[str]:
    """API paths whose view does not say for each method it handles who may call it, and no other."""
    found = []
    for path, view in api_views(urlconf):
        handled = {method.upper() for method in METHODS if hasattr(view, method)}
        if f"GET {path}" not in public and set(getattr(view, "permission", {})) != handled:
            found.append(path)
    return found


def fill(path: str, ids: dict[str, str]) -> str:
    """The path with ids in the place of its parameters, `<type:name>` and `(?P<name>...)`."""
    path = re.sub(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)", lambda match: ids[match[1]], path)
    path = re.sub(r"<(?:\w+:)?(\w+)>", lambda match: ids[match[1]], path)
    return path.replace("^", "").replace("$", "").replace("\\", "")


def _all(urlconf: Any) -> Iterator[tuple[str, URLPattern]]:
    return _walk(get_resolver(urlconf).url_patterns, "/")


def _walk(patterns: list[Any], prefix: str) -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern):
            yield path, pattern


def _class_of(pattern: URLPattern) -> Any:
    return getattr(pattern.callback, "cls", None) or getattr(pattern.callback, "view_class", None)
