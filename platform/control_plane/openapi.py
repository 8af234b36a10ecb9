"""What drf-spectacular cannot read from the views: how callers prove who they are, and what refusals look like."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from control_plane.problems import MEDIA_TYPE
from tenants.listing import ListView

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. The last part of `type` is a stable code.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body, or ?parameter."},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
                "required": ["pointer", "code", "detail"],
            },
        },
        "request_id": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "instance", "errors", "request_id"],
}
_OPERATIONS = frozenset({"get", "post", "put", "patch", "delete"})


class ApiSchema(AutoSchema):
    """Knows our lists: pages of rows with `next` and `previous`, and the parameters `cursor` and `limit`."""

    def _is_list_view(self, serializer: Any = None) -> bool:
        is_list = isinstance(self.view, ListView) and self.method == "GET"
        return is_list or bool(super()._is_list_view(serializer))


class ApiKeyScheme(OpenApiAuthenticationExtension):
    target_class = "control_plane.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key: `Authorization: Bearer jnx_…`."}


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "control_plane.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "The browser's log-in."}


def add_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Postprocessing hook: every operation may answer with a problem."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM_SCHEMA
    answer = {
        "description": "Refused.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for methods in result["paths"].values():
        for method, operation in methods.items():
            if method in _OPERATIONS:
                operation["responses"].setdefault("default", answer)
    return result
