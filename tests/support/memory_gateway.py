"""The runtime in memory behind a real port, for tests whose control plane is another process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.support.memory_runtime import InMemoryRuntime
from tests.support.memory_transport import gateway_transport


@contextmanager
def gateway_at_port(runtime: InMemoryRuntime, *, token: str) -> Iterator[str]:
    """Serve a runtime on 127.0.0.1 and give its URL."""
    transport = gateway_transport(runtime, token=token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = httpx.Request(
                self.command, f"http://runtime{self.path}", headers=dict(self.headers.items()), content=body
            )
            answer = transport.handle_request(request)
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            if "Content-Range" in answer.headers:
                self.send_header("Content-Range", answer.headers["Content-Range"])
            self.end_headers()
            self.wfile.write(answer.content)

        do_POST = do_DELETE = do_GET

        def log_message(self, *args: Any) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
