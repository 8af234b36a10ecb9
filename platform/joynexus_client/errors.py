"""What can go wrong, by name. Refusals are problem+json (RFC 9457) of the server."""

from dataclasses import dataclass
from typing import Any


class JoyNexusError(Exception):
    """Base of everything this client raises."""


class Unreachable(JoyNexusError):
    """No connection, also after the repeats."""


class Timeout(JoyNexusError):
    """What was waited for did not happen in time."""


class Corrupted(JoyNexusError):
    """A download does not have the SHA-256 the server promised; nothing was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One refused field: a JSON pointer, a stable code, and what is allowed."""

    pointer: str
    code: str
    detail: str


class ApiError(JoyNexusError):
    """The server answered no."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.code = str(body.get("type", "")).rpartition(":")[2].replace("-", "_") or f"http_{status}"
        self.detail = str(body.get("detail", f"HTTP {status}"))
        self.request_id = body.get("request_id")
        self.problems = tuple(
            FieldProblem(pointer=item["pointer"], code=item["code"], detail=item["detail"])
            for item in body.get("errors", [])
        )
        fields = "".join(f"\n  {problem.pointer}: {problem.detail}" for problem in self.problems)
        super().__init__(f"{self.code}: {self.detail}{fields}")


class Unauthorized(ApiError):
    """The API key is not valid (401)."""


class Forbidden(ApiError):
    """The key's role may not do this (403)."""


class NotFound(ApiError):
    """There is no such thing in your tenant (404)."""


class Conflict(ApiError):
    """Not in the present state (409)."""


class Stale(ApiError):
    """Somebody changed it meanwhile; read it again (412)."""


class Invalid(ApiError):
    """The request is not valid; ``problems`` names the fields (400, 422)."""


class Unavailable(ApiError):
    """Too busy or a part is away, also after the repeats (429, 502, 503, 504)."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Stale,
    422: Invalid,
    **dict.fromkeys((429, 502, 503, 504), Unavailable),
}


def api_error(status: int, body: Any) -> ApiError:
    """The named error of an answer."""
    return _BY_STATUS.get(status, ApiError)(status, body if isinstance(body, dict) else {})
