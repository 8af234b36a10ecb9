"""HTTP with repeats. A repeat is the same request: same key, same body."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from joynexus_client.errors import Unreachable, api_error

REPEATS = 5
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.25, 8.0
_TIMEOUT_S = 30.0
_TRANSFER_TIMEOUT_S = 600.0
_PASSING = frozenset({429, 502, 503, 504})


class Transport:
    """One connection pool to one server, as one API key."""

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {api_key}", "Accept": "application/json"},
            timeout=_TIMEOUT_S,
            transport=transport,
        )
        self._sleep = sleep

    def close(self) -> None:
        self._http.close()

    def pause(self, seconds: float) -> None:
        self._sleep(seconds)

    def get(self, path: str, *, wait_s: float = 0.0, **params: Any) -> Any:
        """A JSON answer. ``wait_s`` of a long poll is added to the time limit."""
        query = {name: value for name, value in params.items() if value is not None} or None  # {} would empty a link's
        return self._json("GET", path, params=query, timeout=_TIMEOUT_S + wait_s)

    def post(
        self, path: str, body: Any = None, *, idempotency_key: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> Any:
        """Once, however often it has to be sent: the key is made here and kept over every repeat."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return self._json("POST", path, json=body if body is not None else {}, headers=headers, timeout=timeout_s)

    def patch(self, path: str, body: Any, *, if_match: str | None = None) -> Any:
        """Change what is there; a repeat changes it to the same. With ``if_match`` only what has that ETag."""
        return self._json("PATCH", path, json=body, headers={"If-Match": if_match} if if_match else {})

    def etag(self, path: str) -> str:
        """The version of a row as its ETag."""
        return self._repeat(lambda: self._http.get(path, timeout=_TIMEOUT_S)).headers["ETag"]

    def append(self, path: str, chunk: bytes, *, headers: dict[str, str]) -> Any:
        """PATCH bytes onto what is there. A repeat of what did arrive is refused by its offset, with the right one."""
        headers = {"Content-Type": "application/octet-stream", **headers}
        return self._json("PATCH", path, content=chunk, headers=headers, timeout=_TRANSFER_TIMEOUT_S)

    def delete(self, path: str) -> None:
        """A repeat of what did arrive is as good as the first time."""
        self._repeat(lambda: self._http.request("DELETE", path))

    def send_file(self, path: str, open_body: Callable[[], Any], *, headers: dict[str, str], **params: Any) -> Any:
        """POST a file as the body; ``open_body`` opens it anew for each repeat."""
        query = {name: value for name, value in params.items() if value is not None}
        headers = {"Idempotency-Key": str(uuid.uuid4()), **headers}

        def send() -> httpx.Response:
            with open_body() as body:
                return self._http.post(path, content=body, headers=headers, params=query, timeout=_TRANSFER_TIMEOUT_S)

        return self._repeat(send).json()

    def pages(self, path: str, **params: Any) -> Iterator[Any]:
        """Every row of a cursor-paginated list."""
        page = self.get(path, **params)
        while True:
            yield from page["results"]
            if page.get("next") is None:
                return
            page = self.get(page["next"])

    def save(self, path: str, to: Path, *, accept: str, **params: Any) -> Path:
        """An answer as a file: whole or not at all."""
        draft = to.with_name(f"{to.name}.{os.getpid()}.part")
        try:
            with self.stream(path, accept=accept, **params) as response, draft.open("wb") as out:
                for chunk in response.iter_bytes():
                    out.write(chunk)
            return draft.replace(to)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def stream(self, path: str, *, accept: str = "*/*", **params: Any) -> Iterator[httpx.Response]:
        """An open download."""
        query = {name: value for name, value in params.items() if value is not None}
        try:
            with self._http.stream("GET", path, headers={"Accept": accept}, params=query) as response:
                if not response.is_success:
                    response.read()
                    raise api_error(response.status_code, _body(response))
                yield response
        except httpx.TransportError as error:
            raise Unreachable(f"GET {path}: {error}") from error

    def _json(self, method: str, path: str, **options: Any) -> Any:
        return self._repeat(lambda: self._http.request(method, path, **options)).json()

    def _repeat(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        pause_s = _PAUSE_MIN_S
        for repeat in range(REPEATS + 1):
            last = repeat == REPEATS
            try:
                response = send()
            except httpx.TransportError as error:
                if last:
                    raise Unreachable(f"{self._http.base_url}: {type(error).__name__}: {error}") from error
            else:
                if response.is_success:
                    return response
                if last or not _is_passing(response):
                    raise api_error(response.status_code, _body(response))
                pause_s = max(pause_s, _retry_after_s(response))
            self._sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
        raise AssertionError("the last repeat returns or raises")


def _is_passing(response: httpx.Response) -> bool:
    """Whether the same request may succeed soon. A 409 says so itself: the first sending of it is still under way."""
    return response.status_code in _PASSING or (response.status_code == 409 and "Retry-After" in response.headers)


def _retry_after_s(response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), 60.0) if text.isdigit() else 0.0


def _body(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return {}
