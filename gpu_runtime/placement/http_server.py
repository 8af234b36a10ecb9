"""uvicorn on a socket of our own making; signals belong to the placement."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette


class Server(uvicorn.Server):
    """A uvicorn server that leaves signal handling to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def build_server(app: Starlette) -> Server:
    """Serve with ``await server.serve(sockets=[...])``; stop by setting ``should_exit``."""
    return Server(
        uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1, ws="none"
        )
    )


def open_socket(listen: str) -> socket.socket:
    """Bind ``unix:PATH`` (mode 0600, a stale socket is replaced) or ``HOST:PORT``. Raises OSError."""
    kind, _, rest = listen.partition(":")
    if kind == "unix":
        return _unix_socket(Path(rest))
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host.strip("[]"), int(port)))
    return server


def _unix_socket(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        server.bind(str(path))
    finally:
        os.umask(mask)
    return server
