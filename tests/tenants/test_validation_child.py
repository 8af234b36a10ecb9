"""The child process that reads a tenant's recording: watched, bounded in time, without our secrets."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_runtime.protocol.schema import Defect, ValidationReport
from tenants.datasets import validation

REPORT = ValidationReport(
    defects=(Defect(severity="error", code="fps_wrong", message="fps is 0", file="meta/info.json"),), summary=None
)
RUN = validation._run


def child(monkeypatch, code: str, wall_limit_s: float = 30, heartbeat=lambda: True) -> validation.Outcome:
    """The outcome when the child process runs this instead of the validator."""
    monkeypatch.setattr(validation, "_run", lambda _, *limits: RUN([sys.executable, "-c", code], *limits))
    return validation.validate(Path("x"), extract_to=None, declared={}, heartbeat=heartbeat, wall_limit_s=wall_limit_s)


def test_a_long_reading_keeps_its_claim_and_ends_when_the_claim_is_lost(monkeypatch):
    monkeypatch.setattr(validation, "HEARTBEAT_S", 0.05)
    answers = iter([True, True, False])
    with pytest.raises(validation.ClaimLost):
        child(monkeypatch, "import time; time.sleep(600)", heartbeat=lambda: next(answers))
    assert list(answers) == []


def test_what_the_child_writes_slowly_is_read_whole(monkeypatch):
    monkeypatch.setattr(validation, "HEARTBEAT_S", 0.05)
    text = REPORT.model_dump_json(by_alias=True)
    code = f"import time; text = {text!r}; print(text[:50], end='', flush=True); time.sleep(0.3); print(text[50:])"
    assert child(monkeypatch, code).report == REPORT


def test_a_child_that_hangs_is_ended_with_its_own_children(monkeypatch, tmp_path: Path):
    note = tmp_path / "pid"
    code = (
        "import pathlib, subprocess\n"
        "sleeper = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(sleeper.pid))\n"
        "sleeper.wait()\n"
    )
    outcome = child(monkeypatch, code, wall_limit_s=3)
    assert outcome.reason == "validation_timed_out: it took longer than 3 s"
    deadline_s = time.monotonic() + 10  # the signal is sent; dying takes its moment
    while _is_alive(int(note.read_text())):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    """True unless the process is gone or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_child_killed_by_a_signal_or_ended_without_a_report_is_told_apart(monkeypatch):
    killed = child(monkeypatch, f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    assert killed.reason.startswith("validation_killed: SIGKILL")
    crashed = child(monkeypatch, "raise SystemExit(3)")
    assert crashed.reason == "validation_crashed: the reader ended with status 3"


def test_the_child_gets_no_secret_of_ours(monkeypatch):
    monkeypatch.setenv("JOYNEXUS_RUNTIME_TOKEN", "secret")
    code = "import os, sys; sys.exit(int('JOYNEXUS_RUNTIME_TOKEN' in os.environ))"
    assert child(monkeypatch, code).reason.endswith("status 0")


WORKER = """
import sys
from pathlib import Path
from tenants.datasets import validation
path = Path(sys.argv[1])
validation.validate(path, extract_to=path.parent / "unpacked", declared={}, heartbeat=lambda: True)
"""


def test_a_worker_killed_with_minus_nine_leaves_no_reader_behind(tmp_path: Path):
    archive = tmp_path / "recording.zip"
    os.mkfifo(archive)  # nobody writes to it: the reader waits for ever
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(archive)], env=environment)
    try:
        readers = _descendants(worker.pid, count=2)
    finally:
        worker.kill()
        worker.wait()
    deadline_s = time.monotonic() + 10
    while any(map(_is_alive, readers)):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def _descendants(pid: int, *, count: int) -> list[int]:
    """The chain of children below a process, once it is ``count`` long."""
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        chain = [pid]
        while children := Path(f"/proc/{chain[-1]}/task/{chain[-1]}/children").read_text().split():
            chain.append(int(children[0]))
        if len(chain) > count:
            return chain[1:]
        time.sleep(0.05)
    raise AssertionError(f"process {pid} started no chain of {count}")
