"""Refusals of the scheduler. The docstring is the default message; a refusal changes nothing."""

from typing import ClassVar


class SchedulerError(Exception):
    """The scheduler refused."""

    code: ClassVar[str] = "scheduler_error"  # machine-readable, stable

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class InvalidRequest(SchedulerError, ValueError):
    """A field has a value that is not allowed."""

    code = "invalid_request"


class UnknownPartition(SchedulerError, LookupError):
    """No training job with this partition id is retained."""

    code = "unknown_partition"


class DuplicatePartition(SchedulerError):
    """This partition id was reserved before."""

    code = "duplicate_partition"


class InvalidTransition(SchedulerError):
    """The training job is not in a state that allows this."""

    code = "invalid_transition"


class InFlightBound(SchedulerError):
    """The job already has as many partitions in flight as it may."""

    code = "in_flight_bound"


class QueueFull(SchedulerError):
    """The retained partitions have no room for more bytes."""

    code = "queue_full"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason  # "tenant_bytes" | "total_bytes"


class DuplicateRequest(SchedulerError):
    """This request id waits or runs already."""

    code = "duplicate_request"


class UnknownRequest(SchedulerError, LookupError):
    """No request with this id waits or runs."""

    code = "unknown_request"


class InferenceQueueFull(SchedulerError):
    """As many predict requests as allowed wait or run already; ask again after an answer."""

    code = "inference_queue_full"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason  # "session_requests" | "tenant_requests" | "total_requests"


class StalenessBound(SchedulerError):
    """The result would be older than the staleness bound when its turn comes."""

    code = "staleness_bound"


class StaleEpoch(SchedulerError):
    """The lease of this epoch is gone: the effect comes too late and is refused."""

    code = "stale_epoch"


def require(allowed: bool, field: str, value: object, expected: str) -> None:
    """Raise InvalidRequest naming the field, its value and what is allowed."""
    if not allowed:
        raise InvalidRequest(f"{field} = {value!r} is not allowed; expected {expected}")
