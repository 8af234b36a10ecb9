"""`manage.py up`: migrate, collect static files, then run the whole platform until Ctrl-C or SIGTERM."""

import asyncio
import shutil
import socket
import sys
from argparse import ArgumentParser
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from control_plane.supervisor.stack import programs
from control_plane.supervisor.supervisor import AlreadyRunning, Supervisor, exclusive

_NAME_WIDTH = 10


class Command(BaseCommand):
    help = "Run web, worker, beat, relay, GPU runtime and broker on this machine; restart what dies."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address of the web server")
        parser.add_argument("--port", type=int, default=8000, help="port of the web server")

    def handle(self, *args: object, host: str, port: int, **options: object) -> None:
        _require_free(host, port)
        try:
            with exclusive(settings.STATE_DIR / "supervisor.lock"):
                call_command("migrate", interactive=False, verbosity=0)
                _collect_static_files()
                _forget_counts()
                supervisor = Supervisor(programs(host=host, port=port), write=self._write)
                asyncio.run(supervisor.run(lambda: self._write("supervisor", f"console at http://{host}:{port}")))
        except AlreadyRunning as error:
            raise CommandError(str(error)) from error

    def _write(self, name: str, line: str) -> None:
        sys.stdout.write(f"{name:<{_NAME_WIDTH}} | {line}\n")
        sys.stdout.flush()


def _collect_static_files() -> None:
    """This revision's files; those of earlier revisions go."""
    call_command("collectstatic", interactive=False, verbosity=0)
    current = Path(settings.STATIC_ROOT)
    for earlier in current.parent.iterdir():
        if earlier != current:
            shutil.rmtree(earlier)


def _forget_counts() -> None:
    """Files in which processes of an earlier run have counted: nobody adds to them any more."""
    for counted in Path(settings.JOYNEXUS_METRICS_DIR).glob("*.db"):
        counted.unlink()


def _require_free(host: str, port: int) -> None:
    """Say at once what the web server would only repeat in the log at every restart. Raises CommandError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, OverflowError) as error:
        raise CommandError(f"--host {host} --port {port}: {error}; choose another port") from error
