"""The held-out evaluation of one policy version, gathered over its partitions."""

from gpu_runtime.training.member import Member


def gather(member: Member) -> dict[str, float]:
    """Add one chunk's action error to its job's; with the last chunk, the metrics of the whole evaluation.

    Values are in the dataset's own units: mean, per dimension, and of a policy that predicts the mean action.
    """
    job, work = member.job, member.work
    job.evaluation = member.error if work.chunk == 0 or job.evaluation is None else job.evaluation + member.error
    if not work.is_last_chunk:
        return {}
    error, job.evaluation = job.evaluation, None
    return {f"eval/{name}": value for name, value in error.metrics().items()}
