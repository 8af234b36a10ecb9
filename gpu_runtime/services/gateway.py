"""The runtime's HTTP face: bearer token, msgpack bodies, size limits. The only way in."""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from gpu_runtime.protocol.messages import BytesFreed, DrainService, ErrorBody, RuntimeStatus, StopJob, SubmitJob
from gpu_runtime.protocol.wire import MEDIA_TYPE, WireError, decode, encode
from gpu_runtime.services.artifacts import MEDIA_TYPES, Artifacts
from gpu_runtime.services.body_limit import BodyLimit, BodyTooLarge
from gpu_runtime.services.drains import Drains
from gpu_runtime.services.errors import InvalidSubmit, Refused, Unknown
from gpu_runtime.services.feed import LIMIT_MAX, WAIT_MAX_S, EventFeed
from gpu_runtime.services.master import Master
from gpu_runtime.services.removal import Removal

BODY_MAX_BYTES = 64 * 2**20
_RETRY_AFTER_S = "2"
_PROBLEMS_TOLD = 10
_log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)


class Gateway:
    """Translates requests to the master's verbs; holds no state of its own."""

    def __init__(
        self,
        *,
        token: str,
        master: Master,
        feed: EventFeed,
        artifacts: Artifacts,
        drains: Drains,
        removal: Removal,
        status: Callable[[], RuntimeStatus],
    ) -> None:
        self._token = token.encode()
        self._master, self._feed, self._artifacts, self._status = master, feed, artifacts, status
        self._drains, self._removal = drains, removal

    def app(self) -> Starlette:
        """The ASGI application."""
        attempt, service, artifact = "/v1/jobs/{job_id}/{attempt:int}", "/v1/services/{service}", "/v1/artifacts/{id}"
        return Starlette(
            routes=[
                Route("/healthz", _healthz),
                self._route("/v1/jobs", self._submit, "POST"),
                self._route(attempt, self._job, "GET"),
                self._route(f"{attempt}/cancel", self._cancel, "POST"),
                self._route(f"{attempt}/checkpoints", self._delete_checkpoints, "DELETE"),
                self._route("/v1/events", self._events, "GET"),
                self._route(artifact, self._artifact, "GET"),
                self._route(artifact, self._delete_artifact, "DELETE"),
                self._route("/v1/datasets/{version_id}/features", self._delete_features, "DELETE"),
                self._route(f"{service}/drain", self._drain, "POST"),
                self._route(f"{service}/undrain", self._undrain, "POST"),
                self._route("/v1/status", self._runtime, "GET"),
            ],
            middleware=[Middleware(BodyLimit, max_bytes=BODY_MAX_BYTES)],
            exception_handlers={HTTPException: _http_error, Exception: _internal_error},
        )

    def _route(self, path: str, handler: Callable[[Request], Awaitable[Response]], method: str) -> Route:
        async def endpoint(request: Request) -> Response:
            if not self._authorised(request):
                return _error(401, ErrorBody(code="unauthorised", message="a valid bearer token is needed"))
            try:
                return await handler(request)
            except Refused as refused:
                return _error(refused.status, refused.body)
            except BodyTooLarge as error:
                return _error(413, ErrorBody(code="body_too_large", message=str(error)))

        return Route(path, endpoint, methods=[method])

    def _authorised(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            token.encode("utf-8", "surrogateescape"), self._token
        )

    async def _submit(self, request: Request) -> Response:
        return _message(await self._master.submit(await _body(SubmitJob, request)), 202)

    async def _job(self, request: Request) -> Response:
        return _message(await self._master.status(**_attempt(request)))

    async def _cancel(self, request: Request) -> Response:
        stop = await _body(StopJob, request) if await request.body() else StopJob()
        return _message(await self._master.cancel(**_attempt(request), stop=stop), 202)

    async def _delete_checkpoints(self, request: Request) -> Response:
        return _message(BytesFreed(bytes=await self._removal.attempt_checkpoints(**_attempt(request))))

    async def _events(self, request: Request) -> Response:
        batch = await self._feed.read(
            after=int(_number(request, "after", 0, 0, 2**63 - 1)),
            limit=int(_number(request, "limit", 500, 1, LIMIT_MAX)),
            wait_s=_number(request, "wait", 0, 0, WAIT_MAX_S),
        )
        return _message(batch)

    async def _artifact(self, request: Request) -> Response:
        artifact_id = request.path_params["id"]
        path = self._artifacts.file(artifact_id)
        if path is None:
            raise Unknown("unknown_artifact", f"no artifact {artifact_id!r}")
        return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], filename=path.name)  # answers ranges too

    async def _delete_artifact(self, request: Request) -> Response:
        return _message(BytesFreed(bytes=await self._removal.artifact(request.path_params["id"])))

    async def _delete_features(self, request: Request) -> Response:
        return _message(BytesFreed(bytes=await self._removal.dataset_features(request.path_params["version_id"])))

    async def _drain(self, request: Request) -> Response:
        await self._drains.drain(request.path_params["service"], (await _body(DrainService, request)).reason)
        return _message(self._status())

    async def _undrain(self, request: Request) -> Response:
        await self._drains.undrain(request.path_params["service"])
        return _message(self._status())

    async def _runtime(self, _: Request) -> Response:
        return _message(self._status())


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("OK\n")


async def _body(kind: type[M], request: Request) -> M:
    """The message that was sent. Raises InvalidSubmit naming what is wrong with it."""
    try:
        return decode(kind, await request.body())
    except WireError as error:
        raise InvalidSubmit("malformed", str(error)) from error
    except ValidationError as error:
        raise _invalid(error) from error


def _attempt(request: Request) -> dict[str, Any]:
    return {"job_id": request.path_params["job_id"], "attempt": request.path_params["attempt"]}


def _number(request: Request, name: str, default: float, least: float, most: float) -> float:
    """A query parameter. Raises InvalidSubmit naming it, its value and what is allowed."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text) if name == "wait" else int(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise InvalidSubmit("invalid_parameter", f"{name} is {text!r}; allowed: {least} to {most}", name)
    return value


def _invalid(error: ValidationError) -> InvalidSubmit:
    """The first problem's field, and the first few in the message."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    places = [_place(problem["loc"]) for problem in problems]
    told = [f"{place}: {problem['msg']}" for place, problem in zip(places, problems, strict=True)][:_PROBLEMS_TOLD]
    message = "; ".join([*told, f"and {len(problems) - len(told)} more"] if len(problems) > len(told) else told)
    return InvalidSubmit("invalid", message, places[0] or None)


def _place(location: tuple[int | str, ...]) -> str:
    """The path of a field; the kind of a specification tells which model it is read by, and is no field of it."""
    inside_spec = location[:1] == ("spec",)
    return ".".join(str(part) for part in (location[:1] + location[2:] if inside_spec else location))


def _message(message: BaseModel, status: int = 200) -> Response:
    return Response(encode(message), status, media_type=MEDIA_TYPE)


def _error(status: int, body: ErrorBody) -> Response:
    headers = {"retry-after": _RETRY_AFTER_S} if status == 503 else {}
    if status == 401:
        headers = {"www-authenticate": "Bearer"}
    return Response(encode(body), status, headers, MEDIA_TYPE)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, ErrorBody(code=f"http_{error.status_code}", message=error.detail))


async def _internal_error(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _error(500, ErrorBody(code="internal_error", message="the runtime failed; its log says why"))
