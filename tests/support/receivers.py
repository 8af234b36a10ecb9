"""Real receivers of webhooks on this machine: HTTP and TLS servers that note what came and answer as told."""

import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(slots=True, kw_only=True)
class Receiver:
    """A running server. ``answer`` writes what comes back; the default is 204."""

    port: int
    received: list[Received] = field(default_factory=list)
    answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: status(handler, 204)


def status(handler: BaseHTTPRequestHandler, code: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def receiver(address: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A server on this address, with TLS if a context is given."""
    found: list[Receiver] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found[0].received.append(Received(path=self.path, headers=headers, body=body))
            found[0].answer(self)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a caller that hangs up is no news
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    found.append(Receiver(port=server.server_address[1]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found[0]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A TCP server that does to every connection what ``talk`` does; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    stream, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=_quietly, args=(talk, stream), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def _quietly(talk: Callable[[socket.socket], None], stream: socket.socket) -> None:
    try:
        with stream:
            talk(stream)
    except OSError:
        pass


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """(a server's context, the file to trust) for a self-signed certificate of this name or literal address."""
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        shown: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        shown = x509.DNSName(name)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([shown]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, private = folder / f"{name}.pem", folder / f"{name}.key"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, private)
    return context, trusted
