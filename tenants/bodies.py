"""Bodies and query strings as pydantic models: every refusal names the field, the value and what is allowed."""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tenants.errors import ApplicationError, FieldError
from tenants.pointers import complaint

M = TypeVar("M", bound=BaseModel)
_NAME_SHOWN_MAX = 120
_DEPTH_MAX = 64
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1  # what databases and messages hold


@overload
def parse_body(kind: type[M], data: Any, *, at: str = "") -> M: ...
@overload
def parse_body(kind: object, data: Any, *, at: str = "") -> Any: ...
def parse_body(kind: Any, data: Any, *, at: str = "") -> Any:
    """Validate a JSON body as ``kind``, a model or a discriminated union of models.

    Raises ApplicationError 422 with one FieldError per problem; ``at`` prefixes pointers.
    """
    refuse_unstorable(data, at)
    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        raise refusal(error, kind, at=at) from error


def parse_query(kind: type[M], params: Mapping[str, Any]) -> M:
    """Validate a query string: unknown and repeated parameters are refused. Pointers look like ``?limit``."""
    refuse_repeated(params)
    refuse_unstorable({name: params[name] for name in params}, "?", separator="")
    try:
        return kind.model_validate({name: params[name] for name in params})
    except ValidationError as error:
        errors = tuple(
            _field_error(item, kind, pointer="?" + "/".join(map(str, item["loc"]))) for item in error.errors()
        )
        raise ApplicationError(
            code="validation_failed", status=422, detail="The query string is not valid.", errors=errors
        ) from error


def refusal(error: ValidationError, kind: Any, *, at: str = "") -> ApplicationError:
    """A pydantic error as the API's own: JSON pointers, stable codes, values and what is allowed."""
    errors = tuple(_field_error(item, kind, at=at) for item in error.errors())
    names = ", ".join(item.pointer or "/" for item in errors[:3]) + (", …" if len(errors) > 3 else "")
    return ApplicationError(
        code="validation_failed", status=422, detail=f"The request is not valid at {names}.", errors=errors
    )


def refuse_repeated(params: Any, at: str = "?") -> None:
    """Refuse a name that a query string or a form gives twice: none of its values is silently dropped."""
    lists = {name: params.getlist(name) for name in params} if hasattr(params, "getlist") else dict(params)
    repeated = [name for name, values in lists.items() if isinstance(values, list) and len(values) > 1]
    if repeated:
        errors = tuple(FieldError(pointer=at + name, code="repeated", detail="Give it once.") for name in repeated)
        raise ApplicationError(
            code="validation_failed", status=422, detail=f"{', '.join(repeated)} came more than once.", errors=errors
        )


def refuse_unstorable(data: Any, at: str = "", separator: str = "/") -> None:
    """Refuse what no database keeps: NUL, halves of surrogate pairs, numbers and nesting without end."""
    for pointer, value, depth in _leaves(data, at, separator):
        if depth > _DEPTH_MAX:
            raise _unstorable(pointer, "too_deep", f"At most {_DEPTH_MAX} levels of nesting are allowed.")
        if isinstance(value, str) and ("\0" in value or not _encodes(value)):
            raise _unstorable(pointer, "text_invalid", "NUL characters and lone surrogates are not allowed.")
        if isinstance(value, float) and not math.isfinite(value):
            raise _unstorable(pointer, "number_invalid", f"Numbers must be finite; got {value}.")
        if isinstance(value, int) and not _INTEGER_MIN <= value <= _INTEGER_MAX:
            detail = f"Whole numbers must lie within {_INTEGER_MIN} and {_INTEGER_MAX}."
            raise _unstorable(pointer, "number_invalid", detail)


def _unstorable(pointer: str, code: str, detail: str) -> ApplicationError:
    shown = pointer.encode(errors="replace").decode()[:_NAME_SHOWN_MAX]
    error = FieldError(pointer=shown, code=code, detail=detail)
    return ApplicationError(code="validation_failed", status=422, detail=detail, errors=(error,))


def _leaves(data: Any, at: str, separator: str = "/") -> Iterator[tuple[str, Any, int]]:
    """(pointer, name or value, depth) of everything in a JSON value; without recursion, so depth is no danger."""
    waiting: list[tuple[str, Any, int]] = [(at, data, 0)]
    while waiting:
        pointer, value, depth = waiting.pop()
        yield pointer, value, depth
        if isinstance(value, dict):
            yield from ((pointer, str(name), depth) for name in value)
            waiting += ((f"{pointer}{separator}{name}", item, depth + 1) for name, item in value.items())
        elif isinstance(value, list):
            waiting += ((f"{pointer}{separator}{index}", item, depth + 1) for index, item in enumerate(value))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _field_error(item: ErrorDetails, kind: Any, *, at: str = "", pointer: str | None = None) -> FieldError:
    path, sentence = complaint(item, kind)
    if pointer is None:
        pointer = at + "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
    return FieldError(pointer=pointer, code=item["type"], detail=sentence)
