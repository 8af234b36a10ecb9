"""What a submit is checked for before it is accepted: one line per kind of job."""

import re
from collections.abc import Mapping
from pathlib import Path

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.protocol.messages import SubmitJob
from gpu_runtime.services.dataset_admission import admit_sft
from gpu_runtime.services.errors import InvalidSubmit

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")  # it names folders and partitions


def admit(submit: SubmitJob, datasets: Path, bases: Mapping[str, Backbone], batch_bytes_max: int) -> None:
    """Raise InvalidSubmit naming the field, its value and what is allowed. ``batch_bytes_max``: of one batch."""
    if not _JOB_ID.fullmatch(submit.job_id):
        message = f"job_id {submit.job_id!r}: allowed are 1 to 100 letters, digits, '_' and '-'"
        raise InvalidSubmit("invalid_job_id", message, "job_id")
    if submit.spec.kind == "sft":
        admit_sft(submit, datasets=datasets, bases=bases, batch_bytes_max=batch_bytes_max)
        return
    raise InvalidSubmit("unknown_kind", f"kind {submit.spec.kind!r}: allowed: sft", "spec.kind")
