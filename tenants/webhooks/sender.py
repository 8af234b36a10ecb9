"""One POST to an address of a tenant's choice that cannot be turned against the platform's own network.

The name is resolved once and the connection goes to that very address; certificate and Host are the name's. No
redirect is followed, no proxy is used, everything together ends after five seconds, at most 64 KB are read and
nothing of them is kept.
"""

import contextlib
import http.client
import io
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from django.conf import settings
from typing_extensions import Buffer

from tenants.webhooks import addresses
from tenants.webhooks.addresses import Address, Forbidden, Target, target_of

DEADLINE_S = 5.0
READ_MAX_BYTES = 64 * 1024
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a try went: the status, or why there is none. ``error`` is empty for 2xx."""

    status: int | None
    error: str
    duration_ms: int

    @property
    def ok(self) -> bool:
        return not self.error


def send(url: str, *, headers: dict[str, str], body: bytes) -> Answer:
    """POST ``body``. Never raises for what the other side does; ``error`` tells nothing of the answer's content."""
    began_s = time.monotonic()
    status: int | None = None
    try:
        status = _post(target_of(url), headers, body, deadline_s=began_s + DEADLINE_S)
    except Forbidden as error:
        said = f"not sent: {error}"
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        said = _sentence(error, late=time.monotonic() - began_s >= DEADLINE_S)
    else:
        said = _status_sentence(status)
    return Answer(status=status, error=said, duration_ms=int((time.monotonic() - began_s) * 1000))


def _post(target: Target, headers: dict[str, str], body: bytes, *, deadline_s: float) -> int:
    found = _within(deadline_s, lambda: addresses.resolve(target))
    if not found:
        raise socket.gaierror("no address")
    for address in found:  # one forbidden address among several is reason enough
        addresses.require_allowed(target, address)
    with _connected(target, found[0], deadline_s) as stream:
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.auto_open = 0  # type: ignore[attr-defined]  # never on its own to where the name leads by now
        connection.sock = stream
        connection.request("POST", target.path, body=body, headers={"Host": target.host_header, **headers})
        response = http.client.HTTPResponse(_Bounded(stream), method="POST")  # type: ignore[arg-type]
        response.begin()
        with contextlib.suppress(OSError, http.client.HTTPException):  # the status is all that counts
            response.read(READ_MAX_BYTES)
        return response.status


class _Bounded(io.RawIOBase):
    """What comes from a socket, headers included, up to `READ_MAX_BYTES`; then it looks ended."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._left = READ_MAX_BYTES

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)[: self._left]
        count = self._stream.recv_into(view) if view else 0
        self._left -= count
        return count


@contextlib.contextmanager
def _connected(target: Target, address: Address, deadline_s: float) -> Iterator[socket.socket]:
    """A connection to this very address; over TLS the certificate must be the name's. It ends at the deadline."""
    raw = socket.create_connection((str(address), target.port), timeout=_left_s(deadline_s))
    with raw:
        if target.scheme == "http":
            with _cut_at(raw, deadline_s):
                yield raw
            return
        # The handshake is under the deadline too.
        stream = _tls().wrap_socket(raw, server_hostname=target.host, do_handshake_on_connect=False)
        with stream, _cut_at(stream, deadline_s):
            stream.do_handshake()
            yield stream


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.JOYNEXUS_WEBHOOK_CA_FILE:
        context.load_verify_locations(settings.JOYNEXUS_WEBHOOK_CA_FILE)
    return context


@contextlib.contextmanager
def _cut_at(stream: socket.socket, deadline_s: float) -> Iterator[None]:
    """End a connection at the deadline, though the other side may send a byte now and then."""

    def cut() -> None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(stream, socket.SHUT_RDWR)  # TLS's own would first forget its state

    timer = threading.Timer(_left_s(deadline_s), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _within(deadline_s: float, work: Callable[[], T]) -> T:
    """The result of ``work``, which runs in a thread of its own. Raises TimeoutError: resolvers know no deadline."""
    done: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = done.get(timeout=_left_s(deadline_s))
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _sentence(error: Exception, *, late: bool) -> str:
    """Why there was no answer, in words that tell nothing but the kind of trouble."""
    if late or isinstance(error, TimeoutError):
        return f"no answer within {DEADLINE_S:.0f} seconds"
    match error:
        case socket.gaierror() | UnicodeError():
            return "the name has no address"
        case ssl.SSLCertVerificationError():
            return "the certificate is not valid for this name"
        case ssl.SSLError():
            return "no TLS connection"
        case ConnectionRefusedError():
            return "connection refused"
        case http.client.RemoteDisconnected():
            return "the connection broke"
        case http.client.HTTPException():
            return "the answer is not HTTP"
    return "the connection broke"


def _status_sentence(status: int) -> str:
    if 200 <= status < 300:
        return ""
    return f"answered {status}; redirects are not followed" if 300 <= status < 400 else f"answered {status}"
