"""The server's answers as typed dictionaries; the OpenAPI document at /api/v1/schema is the full account."""

from typing import Any, TypedDict


class Version(TypedDict):
    """A dataset version; ``summary`` is set once it is ready."""

    id: str
    number: int
    state: str
    reason: str
    size_bytes: int
    created_at: str
    dataset: str
    name: str
    report: dict[str, Any] | None
    summary: dict[str, Any] | None


class Job(TypedDict):
    """A job. Lists leave out ``spec``, ``cost``, ``compute_share`` and ``attempts``."""

    id: str
    kind: str
    name: str
    state: str
    reason: str
    message: str
    base_model: str
    head: str
    dataset: dict[str, Any]
    attempt: int
    step: int
    total_steps: int
    last_seq: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    spec: dict[str, Any]
    cost: dict[str, Any]
    compute_share: float | None
    attempts: list[dict[str, Any]]


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


class Series(TypedDict):
    """One curve of one attempt by columns: ``shown`` buckets of ``total`` points."""

    name: str
    attempt: int
    total: int
    shown: int
    step: list[int]
    last: list[float | None]
    min: list[float | None]
    max: list[float | None]
    special: list[str | None]


class MetricsPage(TypedDict):
    seq: int
    state: str
    series: list[Series]


class Artifact(TypedDict):
    id: str
    kind: str
    name: str
    attempt: int
    policy_version: int
    size_bytes: int
    sha256: str
    manifest: dict[str, Any]
    created_at: str
    download: str


class PolicyVersion(TypedDict):
    id: str
    attempt: int
    version: int
    step: int
    checkpoint: str
    sha256: str
    created_at: str
