"""Refusals of the master, each with the answer the gateway gives."""

from typing import ClassVar

from gpu_runtime.protocol.messages import ErrorBody


class Refused(Exception):
    """A request that has no effect. ``field`` names what is wrong in it, where there is such a field."""

    status: ClassVar[int] = 400

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.body = ErrorBody(code=code, message=message, field=field)


class InvalidSubmit(Refused):
    """The job can never run here as it is specified."""

    status = 422


class Conflict(Refused):
    """The same (job, attempt) was accepted with another body."""

    status = 409


class Unknown(Refused):
    """No such workload or artifact."""

    status = 404


class Gone(Refused):
    """What is asked for existed once."""

    status = 410


class Unavailable(Refused):
    """Nothing new is taken at the moment; the same request may succeed later."""

    status = 503
