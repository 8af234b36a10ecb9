"""The platform as the demo starts it: `manage.py up` in a process of its own, its log in the state folder."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from control_plane.conf import environment as env

_START_LIMIT_S = 90.0
_STOP_LIMIT_S = 10.0


@contextlib.contextmanager
def platform_running(port: int | None, log: Path) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Start the platform, wait until it is ready, give its address and whether it lives; stop it at the end."""
    port = port or _free_port(8000)
    argv = [sys.executable, "manage.py", "up", "--port", str(port)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as out:
        process = subprocess.Popen(
            argv, cwd=env.REPOSITORY, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process, log)
            yield url, lambda: process.poll() is None
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with socket.socket() as probe:
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise RuntimeError("no free port on 127.0.0.1")


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"the platform ended at once with status {process.returncode}; its log is {log}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        time.sleep(0.3)
    raise RuntimeError(f"the platform is not ready after {_START_LIMIT_S:.0f} s; its log is {log}")
