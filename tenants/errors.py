"""The one error a service raises at a user. Views and the exception handler turn it into problem+json."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One refused field: a JSON pointer, a stable code, and a sentence with the value and what is allowed."""

    pointer: str
    code: str
    detail: str


@dataclass(slots=True, kw_only=True)
class ApplicationError(Exception):
    """A refusal with a stable ``code``, an HTTP ``status`` and a sentence the user can act on.

    ``headers`` of the answer, for example Retry-After where the same request may succeed later.
    """

    code: str
    detail: str
    status: int = 400
    errors: tuple[FieldError, ...] = ()
    extra: dict[str, object] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


def invalid(pointer: str, code: str, detail: str) -> ApplicationError:
    """The 422 of one refused field."""
    return ApplicationError(
        code="validation_failed",
        status=422,
        detail=f"The request is not valid at {pointer}.",
        errors=(FieldError(pointer=pointer, code=code, detail=detail),),
    )
