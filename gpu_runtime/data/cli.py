"""``python -m gpu_runtime validate PATH``: one ValidationReport as JSON, whatever the dataset does to its reader.

A child process reads the dataset under memory and CPU limits. Should it be killed, the parent still reports, naming
the file that was being read. The parent imports no reader, so it starts quickly and cannot be brought down.
"""

import argparse
import ctypes
import json
import mmap
import os
import resource
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_runtime.protocol.schema import Defect, ValidationReport

_PLACE_BYTES = 4096
_OUT_OF_MEMORY = 3  # exit status of the child
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one validation, or one look into a dataset, may use."""

    memory_mib: int = 4096
    cpu_s: int = 3600


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when a report was made, whether the dataset is good or not; 2 for wrong usage."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    path: Path = arguments.path
    if not path.exists():
        parser.error(f"PATH {str(path)!r} does not exist")
    if arguments.extract_to is not None and path.is_dir():
        parser.error("--extract-to is for archives; PATH is a directory")
    declared = _declared(parser, arguments.declared)
    limits = Limits(memory_mib=arguments.memory_mib, cpu_s=arguments.cpu_s)
    report = validate_in_child(path, extract_to=arguments.extract_to, declared=declared, limits=limits)
    sys.stdout.write(report.model_dump_json(by_alias=True) + "\n")
    sys.stdout.flush()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_runtime validate", description=__doc__.splitlines()[0])
    parser.add_argument("path", metavar="PATH", type=Path, help="a LeRobot v2.1 or v3.x directory, or a zip of one")
    parser.add_argument(
        "--extract-to", metavar="DIR", type=Path, help="keep the unpacked archive in this empty folder"
    )
    parser.add_argument("--declared", metavar="JSON", help="what info.json cannot say, as a JSON object")
    parser.add_argument("--memory-mib", type=positive, default=Limits().memory_mib, help="address space of the reader")
    parser.add_argument("--cpu-s", type=positive, default=Limits().cpu_s, help="CPU seconds of the reader")
    return parser


def positive(text: str) -> int:
    """A command line's whole number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value


def _declared(parser: argparse.ArgumentParser, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        parser.error(f"--declared is not JSON: {error}")
    if not isinstance(value, dict):
        parser.error("--declared must be a JSON object")
    return value


def validate_in_child(
    path: Path, *, extract_to: Path | None, declared: Mapping[str, Any] | None, limits: Limits
) -> ValidationReport:
    """Fork, limit, validate, report. Must run before the process starts threads."""
    place = mmap.mmap(-1, _PLACE_BYTES)  # shared with the child: the file it is reading
    reading, writing = os.pipe()
    sys.stdout.flush()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reading)
        _run_child(parent, writing, place, path, extract_to, declared, limits)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if status == 0:
        return ValidationReport.model_validate_json(content)
    return _report_of_the_killed(status, usage.ru_utime + usage.ru_stime, place, limits)


def _run_child(
    parent: int,
    writing: int,
    place: mmap.mmap,
    path: Path,
    extract_to: Path | None,
    declared: Mapping[str, Any] | None,
    limits: Limits,
) -> None:
    """Never returns: whatever happens ends this process."""
    status = 1
    try:
        _die_with_parent(parent)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # stdout is for the one report
        apply_limits(limits)
        from gpu_runtime.data.imports import validate_path  # loads the readers: in the child only

        report = validate_path(path, extract_to=extract_to, declared=declared, watcher=_Place(place).write)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(report.model_dump_json(by_alias=True).encode())
        status = 0
    except MemoryError:
        status = _OUT_OF_MEMORY
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class _Place:
    """The shared note of what is being read."""

    def __init__(self, place: mmap.mmap) -> None:
        self._place = place

    def write(self, file: str) -> None:
        content = file.encode("utf-8", "backslashreplace")[: _PLACE_BYTES - 1]
        self._place[:] = content.ljust(_PLACE_BYTES, b"\0")


def _die_with_parent(parent: int) -> None:
    """Whoever kills the command with -9 ends the reader too, even before it got as far as asking for it (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def apply_limits(limits: Limits) -> None:
    """Bound this process: address space, CPU seconds, no core dumps."""
    memory = limits.memory_mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def _report_of_the_killed(status: int, used_s: float, place: mmap.mmap, limits: Limits) -> ValidationReport:
    """The one defect that explains why there is no report, with the file that was being read."""
    killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if killer == signal.SIGXCPU or used_s >= limits.cpu_s:
        code, message = "cpu_limit", f"validation needs more than the {limits.cpu_s} CPU seconds allowed"
    elif killer == signal.SIGKILL or os.waitstatus_to_exitcode(status) == _OUT_OF_MEMORY:
        code, message = "memory_limit", f"validation needs more than the {limits.memory_mib} MiB of memory allowed"
    elif killer is not None:
        code, message = (
            "reader_crashed",
            (f"a reader crashed (signal {killer}): damaged content, or it needs more than {limits.memory_mib} MiB"),
        )
    else:
        code, message = "reader_failed", "validation failed; the error is in the log of the process that ran it"
    file = place[:].rstrip(b"\0").decode("utf-8", "replace") or None
    defect = Defect(severity="error", code=code, message=message, file=file)
    return ValidationReport(defects=(defect,), summary=None)
