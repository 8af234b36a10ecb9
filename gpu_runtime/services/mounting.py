"""From an accepted submit to the workload that runs it: one line per kind of job."""

from collections.abc import Callable, Iterable, Mapping

from gpu_runtime.protocol.messages import SubmitJob
from gpu_runtime.services.evaluation_workload import mount_evaluation
from gpu_runtime.services.job_folder import forget_job_folder, sweep_job_folders
from gpu_runtime.services.parts import RuntimeParts
from gpu_runtime.services.rl_workload import mount_rl
from gpu_runtime.services.rollout_workload import mount_rollout
from gpu_runtime.services.sft_workload import mount_sft
from gpu_runtime.services.workload import Workload

Mount = Callable[[SubmitJob, RuntimeParts, bool], Workload]
"""Of a submit, from the parts of this process; True where the attempt had begun before a restart."""

MOUNTS: Mapping[str, Mount] = {
    "sft": mount_sft,
    "rl": mount_rl,
    "evaluation": mount_evaluation,
    "rollout": mount_rollout,
}


class Mounter:
    """Builds workloads; ``mount`` blocks on files and is run off the event loop."""

    def __init__(self, parts: RuntimeParts, mounts: Mapping[str, Mount] = MOUNTS) -> None:
        self._parts, self._mounts = parts, mounts

    def mount(self, submit: SubmitJob, resumed: bool) -> Workload:
        """Take up where the attempt left off, else start fresh. What is refused has a ``code``."""
        return self._mounts[submit.spec.kind](submit, self._parts, resumed)

    def forget(self, submit: SubmitJob) -> None:
        """Remove what another journal's attempt of the same name left behind."""
        self._parts.checkpoints.forget(submit.job_id, submit.attempt)
        forget_job_folder(self._parts.config.state, submit)

    def leave(self, submit: SubmitJob) -> None:
        """Remove what only a resumed attempt would need: it has ended, and what it made is told, or never will be."""
        parts, job_id, attempt = self._parts, submit.job_id, submit.attempt
        forget_job_folder(parts.config.state, submit)
        parts.artifacts.forget_untold(job_id, attempt, parts.publisher.journal.artifacts_told(job_id, attempt))

    def sweep(self, unfinished: Iterable[SubmitJob]) -> None:
        """The same for every attempt that ended when the last process could not do it any more."""
        sweep_job_folders(self._parts.config.state, unfinished)
