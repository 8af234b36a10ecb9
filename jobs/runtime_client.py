"""The control plane's only way to the GPU runtime: HTTP and msgpack to its gateway."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

import httpx
from django.conf import settings
from pydantic import BaseModel, ValidationError

from gpu_runtime.protocol import wire
from gpu_runtime.protocol.messages import (
    BytesFreed,
    DrainService,
    ErrorBody,
    EventBatch,
    RuntimeStatus,
    StopJob,
    SubmitJob,
    WorkloadStatus,
)

M = TypeVar("M", bound=BaseModel)

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 16
_IDLE_MAX_S = 2.0  # the gateway closes idle connections after 5 s: let go of them first
_BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class RuntimeUnreachable(Exception):
    """No answer. ``maybe_delivered`` is True when the request may have been carried out all the same."""

    def __init__(self, detail: str, *, maybe_delivered: bool) -> None:
        super().__init__(detail)
        self.maybe_delivered = maybe_delivered


class RuntimeRefused(Exception):
    """The gateway answered no: HTTP ``status``, stable ``code``, and a sentence for people."""

    def __init__(self, *, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.status, self.code, self.message, self.field = status, code, message, field

    @property
    def about_the_request(self) -> bool:
        """True if asking again cannot help. Wrong tokens, overload and faults are the platform's own trouble."""
        return self.status in {400, 409, 413, 422}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactStream:
    """An open download; ``close`` it, read or not. Chunks may raise RuntimeUnreachable.

    ``is_part``: it holds the bytes that were asked for, not the whole file.
    """

    size_bytes: int | None
    chunks: Iterator[bytes]
    close: Callable[[], None]
    is_part: bool = False


class RuntimeClient(Protocol):
    """What the control plane needs of a runtime. Each call raises RuntimeUnreachable or RuntimeRefused."""

    def status(self) -> RuntimeStatus: ...

    def submit(self, message: SubmitJob) -> WorkloadStatus:
        """Start one attempt; the same message again is the same answer."""

    def job_status(self, job_id: str, attempt: int) -> WorkloadStatus | None:
        """State of one attempt; None if this runtime does not know it."""

    def cancel(self, job_id: str, attempt: int, stop: StopJob | None = None) -> WorkloadStatus | None:
        """Ask an attempt to stop; None if this runtime does not know it. Again is harmless: the first ask stands."""

    def events(self, *, after: int, limit: int, wait_s: float) -> EventBatch:
        """Journal entries with ``seq > after`` in order; waits up to ``wait_s`` for the first one."""

    def artifact(self, artifact_id: str, *, first: int | None = None, last: int | None = None) -> ArtifactStream:
        """A published file, or its bytes from ``first`` to ``last`` (both included)."""

    def artifact_delete(self, artifact_id: str) -> int:
        """Bytes freed; again is harmless. Refused with 409 while an attempt that has not ended starts from it."""

    def checkpoints_delete(self, job_id: str, attempt: int) -> int:
        """Bytes freed; again is harmless. Refused with 409 while the attempt has not ended."""

    def features_delete(self, version_id: str) -> int:
        """Bytes freed; again is harmless. Refused with 409 while an attempt that has not ended trains on it."""

    def service_drain(self, service: str, reason: str) -> RuntimeStatus:
        """Give a service to no attempt that has not begun, until ``service_undrain``; a restart changes nothing."""

    def service_undrain(self, service: str) -> RuntimeStatus:
        """Again is harmless."""


class HttpRuntimeClient:
    """RuntimeClient over ``unix://PATH`` or ``http(s)://HOST:PORT``, with a bearer token."""

    def __init__(self, url: str, token: str, *, transport: httpx.BaseTransport | None = None) -> None:
        if not url.startswith(("unix://", "http://", "https://")):
            raise ValueError(f"runtime URL {url!r}; allowed: unix://PATH, http://HOST:PORT, https://HOST:PORT")
        socket = url.removeprefix("unix://") if url.startswith("unix://") else None
        limits = httpx.Limits(keepalive_expiry=_IDLE_MAX_S)
        self._http = httpx.Client(
            base_url="http://runtime" if socket else url,
            transport=transport or httpx.HTTPTransport(uds=socket, limits=limits),
            headers={"Authorization": f"Bearer {token}", "Content-Type": wire.MEDIA_TYPE, "Accept": wire.MEDIA_TYPE},
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=False,  # a proxy of the environment has no business with the runtime
        )

    def close(self) -> None:
        self._http.close()

    def status(self) -> RuntimeStatus:
        return _decode(RuntimeStatus, self._send("GET", "/v1/status"))

    def submit(self, message: SubmitJob) -> WorkloadStatus:
        return _decode(WorkloadStatus, self._send("POST", "/v1/jobs", content=wire.encode(message)))

    def job_status(self, job_id: str, attempt: int) -> WorkloadStatus | None:
        return self._known("GET", f"/v1/jobs/{job_id}/{attempt}")

    def cancel(self, job_id: str, attempt: int, stop: StopJob | None = None) -> WorkloadStatus | None:
        content = None if stop is None else wire.encode(stop)
        return self._known("POST", f"/v1/jobs/{job_id}/{attempt}/cancel", content)

    def events(self, *, after: int, limit: int, wait_s: float) -> EventBatch:
        params = {"after": str(after), "limit": str(limit), "wait": str(wait_s)}
        timeout = httpx.Timeout(REQUEST_TIMEOUT_S + wait_s, connect=CONNECT_TIMEOUT_S)
        return _decode(EventBatch, self._send("GET", "/v1/events", params=params, timeout=timeout))

    def artifact(self, artifact_id: str, *, first: int | None = None, last: int | None = None) -> ArtifactStream:
        headers = {} if first is None else {"Range": f"bytes={first}-{'' if last is None else last}"}
        request = self._http.build_request("GET", f"/v1/artifacts/{artifact_id}", headers=headers)
        try:
            response = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise _unreachable(error) from error
        if response.status_code not in {200, 206}:
            with closing(response):
                response.read()
                raise _refused(response)
        length = response.headers.get("Content-Length")
        size_bytes = int(length) if length else None
        is_part = response.status_code == 206
        return ArtifactStream(size_bytes=size_bytes, chunks=_chunks(response), close=response.close, is_part=is_part)

    def artifact_delete(self, artifact_id: str) -> int:
        return _decode(BytesFreed, self._send("DELETE", f"/v1/artifacts/{artifact_id}")).bytes

    def checkpoints_delete(self, job_id: str, attempt: int) -> int:
        return _decode(BytesFreed, self._send("DELETE", f"/v1/jobs/{job_id}/{attempt}/checkpoints")).bytes

    def features_delete(self, version_id: str) -> int:
        return _decode(BytesFreed, self._send("DELETE", f"/v1/datasets/{version_id}/features")).bytes

    def service_drain(self, service: str, reason: str) -> RuntimeStatus:
        content = wire.encode(DrainService(reason=reason))
        return _decode(RuntimeStatus, self._send("POST", f"/v1/services/{service}/drain", content=content))

    def service_undrain(self, service: str) -> RuntimeStatus:
        return _decode(RuntimeStatus, self._send("POST", f"/v1/services/{service}/undrain"))

    def _known(self, method: str, path: str, content: bytes | None = None) -> WorkloadStatus | None:
        try:
            return _decode(WorkloadStatus, self._send(method, path, content=content))
        except RuntimeRefused as refusal:
            if refusal.status == 404:
                return None
            raise

    def _send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: dict[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> bytes:
        request = self._http.build_request(
            method, path, content=content, params=params, timeout=timeout or self._http.timeout
        )
        try:
            try:
                response = self._http.send(request)
            except _BROKEN:  # a connection the gateway closed under us; every verb is idempotent, so ask once more
                response = self._http.send(request)
        except httpx.TransportError as error:
            raise _unreachable(error) from error
        if response.is_success:
            return response.content
        raise _refused(response)


def connect() -> RuntimeClient:
    """The runtime of this deployment: one pool of connections per process, for all its threads."""
    return _connected(settings.JOYNEXUS_RUNTIME_URL, settings.JOYNEXUS_RUNTIME_TOKEN, os.getpid())


@lru_cache(maxsize=4)
def _connected(url: str, token: str, pid: int) -> HttpRuntimeClient:
    return HttpRuntimeClient(url, token)


def _chunks(response: httpx.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_bytes(_CHUNK_BYTES)
    except httpx.TransportError as error:
        raise _unreachable(error) from error


def _decode(kind: type[M], data: bytes) -> M:
    try:
        return wire.decode(kind, data)
    except (wire.WireError, ValidationError) as error:
        detail = f"answer is no {kind.__name__}: {error}"
        raise RuntimeRefused(status=502, code="runtime_answer_invalid", message=detail) from error


def _unreachable(error: httpx.TransportError) -> RuntimeUnreachable:
    never_sent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    detail = f"the GPU runtime does not answer ({type(error).__name__}: {error})"
    return RuntimeUnreachable(detail, maybe_delivered=not never_sent)


def _refused(response: httpx.Response) -> RuntimeRefused:
    try:
        body = wire.decode(ErrorBody, response.content)
    except (wire.WireError, ValidationError):
        text = f"the GPU runtime answered HTTP {response.status_code}"
        return RuntimeRefused(status=response.status_code, code="runtime_refused", message=text)
    return RuntimeRefused(status=response.status_code, code=body.code, message=body.message, field=body.field)
