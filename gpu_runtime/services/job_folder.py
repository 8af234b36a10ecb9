"""Where an attempt keeps what a resumed one goes on from, beside its checkpoints."""

import shutil
from pathlib import Path

from gpu_runtime.protocol.messages import SubmitJob


def job_folder(state: Path, submit: SubmitJob) -> Path:
    """``state``/jobs/<job>/<attempt>; it need not exist."""
    return state / "jobs" / submit.job_id / str(submit.attempt)


def forget_job_folder(state: Path, submit: SubmitJob) -> None:
    """Remove what an attempt of the same name left behind."""
    shutil.rmtree(job_folder(state, submit), ignore_errors=True)
