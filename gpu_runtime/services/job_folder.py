"""Where an attempt keeps what a resumed one goes on from, beside its checkpoints.

The folder goes when the attempt has ended and what it made is told.
"""

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from gpu_runtime.protocol.messages import SubmitJob


def job_folder(state: Path, submit: SubmitJob) -> Path:
    """``state``/jobs/<job>/<attempt>; it need not exist."""
    return state / "jobs" / submit.job_id / str(submit.attempt)


def forget_job_folder(state: Path, submit: SubmitJob) -> None:
    """Remove an attempt's folder, if there is one, as far as the disk lets us; blocks on it."""
    _remove(job_folder(state, submit))


def sweep_job_folders(state: Path, unfinished: Iterable[SubmitJob]) -> None:
    """Remove those of all other attempts: the last process was killed before it could. Blocks on the disk."""
    kept = {job_folder(state, submit) for submit in unfinished}
    for folder in list((state / "jobs").glob("*/*")):
        if folder not in kept:
            _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # another attempt of the job has its own beside it
        folder.parent.rmdir()
