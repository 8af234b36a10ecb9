"""Record demonstrations in the simulators, in child processes side by side; keep them for the next run."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from control_plane.conf import environment as env
from control_plane.demo.progress import Progress, say
from control_plane.demo.scenario import Participant


class RecordingFailed(RuntimeError):
    """A simulator process ended without a dataset."""


class SimulatorMissing(RecordingFailed):
    """The simulator cannot run on this machine; the recorder said why."""


_SIMULATOR_MISSING = 3  # the recorder's exit status


def record_all(participants: Sequence[Participant], folder: Path) -> dict[Participant, Path]:
    """A LeRobot dataset for each participant, from the cache where it is there already.

    Raises SimulatorMissing, or RecordingFailed with the simulator's last lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {who: folder / _cache_name(who) for who in participants}
    failures: list[RecordingFailed] = []
    threads = [
        threading.Thread(target=_record, args=(who, path, failures))
        for who, path in paths.items()
        if not path.exists()
    ]
    for who, path in paths.items():
        if path.exists():
            say(f"  {who.environment} ({who.cameras}): recorded earlier, in {path}")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return paths


def _cache_name(who: Participant) -> str:
    return f"{who.task}-{who.cameras.replace(',', '+')}-{who.image_size}px-{who.episodes}ep-seed{who.seed}"


def _record(who: Participant, path: Path, failures: list[RecordingFailed]) -> None:
    options = {
        "--env": who.environment,
        "--episodes": str(who.episodes),
        "--out": str(path),
        "--cameras": who.cameras,
        "--size": str(who.image_size),
        "--seed": str(who.seed),
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
    tail = _follow(process, who)
    status = process.wait()
    if status == _SIMULATOR_MISSING:
        failures.append(SimulatorMissing(tail[-1] if tail else f"{who.environment} cannot run here"))
    elif status != 0:
        last = "\n".join(tail[-12:])
        failures.append(RecordingFailed(f"recording {who.environment} ended with status {status}:\n{last}"))


def _follow(process: subprocess.Popen[str], who: Participant) -> list[str]:
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
        step = steps.setdefault(phase, Progress(f"{who.task} {phase}", str(update["unit"])))
        step.update(int(update["done"]), int(update["total"]))
    return other
