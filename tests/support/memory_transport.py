"""The runtime in memory behind the gateway's HTTP, without a socket."""

from typing import Any

import httpx

from gpu_runtime.protocol import wire
from gpu_runtime.protocol.messages import BytesFreed, DrainService, ErrorBody, StopJob, SubmitJob, WorkloadStatus
from jobs.runtime_client import RuntimeRefused, RuntimeUnreachable
from tests.support.memory_runtime import InMemoryRuntime


def gateway_transport(runtime: InMemoryRuntime, *, token: str) -> httpx.MockTransport:
    """The same runtime behind the gateway's HTTP: what `HttpRuntimeClient` sends is decoded and answered here."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.headers.get("Authorization") != f"Bearer {token}":
            return _answer(401, ErrorBody(code="unauthorized", message="wrong token"))
        try:
            return _route(runtime, request)
        except RuntimeRefused as refusal:
            return _answer(refusal.status, ErrorBody(code=refusal.code, message=refusal.message))
        except RuntimeUnreachable as error:
            kind = httpx.ReadTimeout if error.maybe_delivered else httpx.ConnectError
            raise kind(str(error), request=request) from error

    return httpx.MockTransport(handle)


def _route(runtime: InMemoryRuntime, request: httpx.Request) -> httpx.Response:
    match [request.method, *request.url.path.strip("/").split("/")]:
        case ["GET", "v1", "status"]:
            return _answer(200, runtime.status())
        case ["POST", "v1", "jobs"]:
            return _answer(202, runtime.submit(wire.decode(SubmitJob, request.content)))
        case ["GET", "v1", "jobs", job_id, attempt]:
            return _known(runtime.job_status(job_id, int(attempt)))
        case ["POST", "v1", "jobs", job_id, attempt, "cancel"]:
            stop = wire.decode(StopJob, request.content) if request.content else None
            return _known(runtime.cancel(job_id, int(attempt), stop))
        case ["DELETE", "v1", "jobs", job_id, attempt, "checkpoints"]:
            return _answer(200, BytesFreed(bytes=runtime.checkpoints_delete(job_id, int(attempt))))
        case ["DELETE", "v1", "datasets", version_id, "features"]:
            return _answer(200, BytesFreed(bytes=runtime.features_delete(version_id)))
        case ["DELETE", "v1", "artifacts", artifact_id]:
            return _answer(200, BytesFreed(bytes=runtime.artifact_delete(artifact_id)))
        case ["POST", "v1", "services", service, "drain"]:
            reason = wire.decode(DrainService, request.content).reason
            return _answer(200, runtime.service_drain(service, reason))
        case ["POST", "v1", "services", service, "undrain"]:
            return _answer(200, runtime.service_undrain(service))
        case ["GET", "v1", "events"]:
            query = request.url.params
            after, limit, wait_s = int(query["after"]), int(query["limit"]), float(query["wait"])
            return _answer(200, runtime.events(after=after, limit=limit, wait_s=wait_s))
        case ["GET", "v1", "artifacts", artifact_id]:
            return _file(runtime, artifact_id, request.headers.get("Range"))
    return _answer(404, ErrorBody(code="unknown_route", message=str(request.url)))


def _file(runtime: InMemoryRuntime, artifact_id: str, asked: str | None) -> httpx.Response:
    if asked is None:
        return httpx.Response(200, content=b"".join(runtime.artifact(artifact_id).chunks))
    first, _, last = asked.removeprefix("bytes=").partition("-")
    part = b"".join(runtime.artifact(artifact_id, first=int(first), last=int(last) if last else None).chunks)
    size = len(runtime.artifacts[artifact_id])
    headers = {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{size}"}
    return httpx.Response(206, content=part, headers=headers)


def _known(status: WorkloadStatus | None) -> httpx.Response:
    return _answer(404, ErrorBody(code="unknown_job", message="unknown")) if status is None else _answer(200, status)


def _answer(status: int, message: Any) -> httpx.Response:
    return httpx.Response(status, content=wire.encode(message), headers={"Content-Type": wire.MEDIA_TYPE})
