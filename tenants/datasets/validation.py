"""Reading a tenant's recording in a child process: parsers of foreign bytes never run in a worker's own process."""

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpu_runtime.protocol.schema import ValidationReport

logger = logging.getLogger(__name__)

WALL_LIMIT_S = 900
HEARTBEAT_S = 10.0
_PR_SET_PDEATHSIG = 1
_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "HOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A report, or the reason why there is none."""

    report: ValidationReport | None
    reason: str = ""


class ClaimLost(Exception):
    """Somebody else reads this version now."""


def validate(
    path: Path,
    *,
    extract_to: Path | None,
    declared: dict[str, Any],
    heartbeat: Callable[[], bool],
    wall_limit_s: float = WALL_LIMIT_S,
) -> Outcome:
    """Run `python -m gpu_runtime validate`; it sets its own memory and CPU limits, the wall clock is set here.

    The child gets no secret of this process: its environment holds a handful of harmless names. ``heartbeat``
    is called while it runs; when it says False the child is ended. Raises ClaimLost then.
    """
    command = [sys.executable, "-m", "gpu_runtime", "validate", str(path)]
    command += ["--extract-to", str(extract_to)] if extract_to else []
    command += ["--declared", json.dumps(declared)] if declared else []
    try:
        done = _run(command, wall_limit_s, heartbeat)
    except subprocess.TimeoutExpired:
        return Outcome(report=None, reason=f"validation_timed_out: it took longer than {wall_limit_s:g} s")
    return _outcome(done)


def _run(command: list[str], wall_limit_s: float, heartbeat: Callable[[], bool]) -> subprocess.CompletedProcess[bytes]:
    """Like ``subprocess.run`` with a heartbeat; whatever goes wrong ends the child's whole process group."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    ) as child:
        try:
            stdout, stderr = _watch(child, wall_limit_s, heartbeat)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, child.returncode, stdout, stderr)


def child_environment() -> dict[str, str]:
    """What a reader of foreign bytes may know: a handful of harmless names, none of this process's secrets."""
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return environment | {"OMP_NUM_THREADS": "1"}


def die_with_parent(parent: int) -> None:
    """Before exec in the child: a worker killed with -9 leaves no reader behind to meet its successor's (Linux).

    ``parent`` is the worker's process id: one that died before the signal was asked for sends none.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _watch(child: subprocess.Popen[bytes], wall_limit_s: float, heartbeat: Callable[[], bool]) -> tuple[bytes, bytes]:
    deadline_s = time.monotonic() + wall_limit_s
    while True:
        try:
            return child.communicate(timeout=min(HEARTBEAT_S, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline_s:
                raise
        if not heartbeat():
            raise ClaimLost


def _outcome(done: subprocess.CompletedProcess[bytes]) -> Outcome:
    try:
        return Outcome(report=ValidationReport.model_validate_json(done.stdout))
    except ValidationError:
        logger.error("validator ended with %d: %s", done.returncode, done.stderr.decode(errors="replace")[-2000:])
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return Outcome(
            report=None, reason=f"validation_killed: {name}; the dataset needs more memory or time than allowed"
        )
    return Outcome(report=None, reason=f"validation_crashed: the reader ended with status {done.returncode}")
