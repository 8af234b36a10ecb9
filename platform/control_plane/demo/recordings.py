"""Record demonstrations in the simulators, in child processes side by side; keep them for the next run."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from control_plane.conf import environment as env
from control_plane.demo.progress import Progress, say
from control_plane.demo.scenario import Demonstrations


class RecordingFailed(RuntimeError):
    """A simulator process ended without a dataset."""


class SimulatorMissing(RecordingFailed):
    """The simulator cannot run on this machine; the recorder said why."""


_SIMULATOR_MISSING = 3  # the recorder's exit status


def record_all(wanted: Iterable[Demonstrations], folder: Path) -> dict[Demonstrations, Path]:
    """A LeRobot dataset for each, from the cache where it is there already.

    Raises SimulatorMissing, or RecordingFailed with the simulator's last lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {what: folder / what.folder for what in wanted}
    failures: list[RecordingFailed] = []
    threads = [
        threading.Thread(target=_record, args=(what, path, failures))
        for what, path in paths.items()
        if not path.exists()
    ]
    for what, path in paths.items():
        if path.exists():
            say(f"  {what.name}: recorded earlier, in {path}")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return paths


def _record(what: Demonstrations, path: Path, failures: list[RecordingFailed]) -> None:
    options = {
        "--env": what.environment,
        "--episodes": str(what.episodes),
        "--out": str(path),
        "--cameras": what.cameras,
        "--state": what.state,
        "--size": str(what.image_size),
        "--seed": str(what.seed),
    }
    argv = [sys.executable, "-m", "gpu_runtime", "record", "--progress-json"]
    for option, value in options.items():
        argv += [option, value]
    process = subprocess.Popen(
        argv,
        cwd=env.REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    tail = _follow(process, what)
    status = process.wait()
    if status == _SIMULATOR_MISSING:
        failures.append(SimulatorMissing(tail[-1] if tail else f"{what.environment} cannot run here"))
    elif status != 0:
        last = "\n".join(tail[-12:])
        failures.append(RecordingFailed(f"recording {what.environment} ended with status {status}:\n{last}"))


def _follow(process: subprocess.Popen[str], what: Demonstrations) -> list[str]:
    """Turn the recorder's progress lines into ours; keep everything else for the error message."""
    steps: dict[str, Progress] = {}
    other: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        try:
            update = json.loads(line)
        except ValueError:
            update = None
        if not isinstance(update, dict) or "phase" not in update:
            other.append(line.rstrip())
            continue
        phase = str(update["phase"])
        step = steps.setdefault(phase, Progress(f"{what.name}, {phase}", str(update["unit"])))
        step.update(int(update["done"]), int(update["total"]))
    return other
