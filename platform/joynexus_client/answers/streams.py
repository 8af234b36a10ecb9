"""What a job tells while it runs, and what it publishes."""

from typing import Any, Literal, TypedDict

ArtifactKind = Literal["adapter", "checkpoint", "evaluation", "video", "dataset"]


class Event(TypedDict):
    seq: int
    attempt: int
    type: str
    data: dict[str, Any]
    occurred_at: str


class EventPage(TypedDict):
    """Events in order; ask again with ``after=seq``."""

    events: list[Event]
    seq: int
    more: bool
    state: str


LogLevel = Literal["info", "warning", "error"]


class LogLine(TypedDict):
    """``level`` is ``state`` where the job changed its state, which is then in ``state``."""

    seq: int
    attempt: int
    level: str
    state: str
    message: str
    occurred_at: str


class LogPage(TypedDict):
    """Lines in order; ask again with ``after=seq``, or with ``before`` the first one's number."""

    lines: list[LogLine]
    seq: int
    older: bool
    newer: bool


class Series(TypedDict):
    """One curve of one attempt by columns: ``shown`` buckets of ``total`` points."""

    name: str
    attempt: int
    total: int
    shown: int
    width: int  # steps of a bucket
    step: list[int]
    time: list[float]  # of the last point, seconds since 1970
    last: list[float | None]
    min: list[float | None]
    max: list[float | None]
    special: list[str | None]


class MetricsPage(TypedDict):
    seq: int
    state: str
    series: list[Series]


class Artifact(TypedDict):
    """A published file; ``manifest`` is the adapter's, or the report, film or recording in short."""

    id: str
    job: str
    kind: ArtifactKind
    media_type: str
    name: str
    attempt: int
    policy_version: int
    size_bytes: int
    sha256: str
    manifest: dict[str, Any]
    created_at: str
    keep_until: str | None  # then it is deleted; None: until you do so
    deleted_at: str | None  # its file is gone, what is said of it stays
    download: str


class PolicyVersion(TypedDict):
    id: str
    attempt: int
    version: int
    step: int
    checkpoint: str
    sha256: str
    created_at: str
