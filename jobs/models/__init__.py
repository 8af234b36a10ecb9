"""Rows of the jobs app."""

from jobs.models.curves import MetricBucket, MetricCurve
from jobs.models.job import JOB_STATES, Job, JobAttempt, JobEvent, JobTag, MetricPoint
from jobs.models.platform import DeviceSpan, OutboxMessage, RuntimeCursor, RuntimeSnapshot
from jobs.models.published import Artifact, ArtifactKind, DatasetImport, ImportState, PolicyVersion

__all__ = [
    "JOB_STATES",
    "Artifact",
    "ArtifactKind",
    "DatasetImport",
    "DeviceSpan",
    "ImportState",
    "Job",
    "JobAttempt",
    "JobEvent",
    "JobTag",
    "MetricBucket",
    "MetricCurve",
    "MetricPoint",
    "OutboxMessage",
    "PolicyVersion",
    "RuntimeCursor",
    "RuntimeSnapshot",
]
