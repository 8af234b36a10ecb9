"""Datasets as the server tells of them."""

from typing import Any, TypedDict


class Version(TypedDict):
    """A dataset version; ``summary`` is set once it is ready, ``recorded_from`` if a job made it.

    ``derived_from`` is the version it was made from, if its uploader said so.
    """

    id: str
    number: int
    state: str
    reason: str
    size_bytes: int
    created_at: str
    dataset: str
    name: str
    recorded_from: str | None
    derived_from: str | None
    declared: dict[str, Any]
    report: dict[str, Any] | None
    summary: dict[str, Any] | None
