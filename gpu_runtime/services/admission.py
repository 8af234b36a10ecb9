"""What a submit is checked for before it is accepted: whatever can be said without starting anything."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.protocol.messages import SubmitJob
from gpu_runtime.services.artifacts import Artifacts
from gpu_runtime.services.config import RuntimeConfig
from gpu_runtime.services.dataset_admission import admit_sft
from gpu_runtime.services.errors import InvalidSubmit
from gpu_runtime.services.policy_admission import admit_policy_job

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")  # it names folders and partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What can run here."""

    config: RuntimeConfig
    bases: Mapping[str, Backbone]
    artifacts: Artifacts
    families: Mapping[str, str]

    def check(self, submit: SubmitJob) -> None:
        """Raise InvalidSubmit naming the field, its value and what is allowed."""
        if not _JOB_ID.fullmatch(submit.job_id):
            message = f"job_id {submit.job_id!r}: allowed are 1 to 100 letters, digits, '_' and '-'"
            raise InvalidSubmit("invalid_job_id", message, "job_id")
        config = self.config
        if submit.spec.kind == "sft":
            admit_sft(submit, datasets=config.datasets, bases=self.bases, batch_bytes_max=config.batch_bytes_max)
        else:
            admit_policy_job(submit, config=config, bases=self.bases, artifacts=self.artifacts, families=self.families)
