"""Bodies and query strings as pydantic models: every refusal names the field, the value and what is allowed."""

import math
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tenants.errors import ApplicationError, FieldError

M = TypeVar("M", bound=BaseModel)
_VALUE_SHOWN_MAX = 120
_DEPTH_MAX = 64


def parse_body(kind: type[M], data: Any, *, at: str = "") -> M:
    """Validate a JSON body. Raises ApplicationError 422 with one FieldError per problem; ``at`` prefixes pointers."""
    refuse_unstorable(data, at)
    try:
        return kind.model_validate(data)
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
    """Refuse what no database keeps: NUL, halves of surrogate pairs, infinite numbers, nesting without end."""
    for pointer, value, depth in _leaves(data, at, separator):
        if depth > _DEPTH_MAX:
            raise _unstorable(pointer, "too_deep", f"At most {_DEPTH_MAX} levels of nesting are allowed.")
        if isinstance(value, str) and ("\0" in value or not _encodes(value)):
            raise _unstorable(pointer, "text_invalid", "NUL characters and lone surrogates are not allowed.")
        if isinstance(value, float) and not math.isfinite(value):
            raise _unstorable(pointer, "number_invalid", f"Numbers must be finite; got {value}.")


def _unstorable(pointer: str, code: str, detail: str) -> ApplicationError:
    shown = pointer.encode(errors="replace").decode()[:_VALUE_SHOWN_MAX]
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


def _field_error(item: ErrorDetails, kind: Any, *, at: str = "", pointer: str | None = None) -> FieldError:
    path, parent = _walk(kind, item["loc"])
    if pointer is None:
        pointer = at + "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
    return FieldError(pointer=pointer, code=item["type"], detail=_sentence(item, parent))


def _sentence(item: ErrorDetails, parent: Any) -> str:
    name = str(item["loc"][-1]) if item["loc"] else "body"
    if item["type"] == "extra_forbidden":
        return f"Unknown field {name!r}. Allowed: {', '.join(_names(parent))}."
    if item["type"] == "missing":
        return f"{name!r} is required."
    shown = repr(item["input"])
    if len(shown) > _VALUE_SHOWN_MAX:
        shown = shown[:_VALUE_SHOWN_MAX] + "…"
    return f"{item['msg']}; got {shown}."


def _names(model: Any) -> list[str]:
    if not _is_model(model):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _walk(kind: Any, loc: tuple[int | str, ...]) -> tuple[list[int | str], Any]:
    """Follow an error's location through the models: (location without union tags, model that holds its last part)."""
    path: list[int | str] = []
    current, parent = kind, kind
    for part in loc:
        members = _members(current)
        tagged = next((member for member in members if len(members) > 1 and _has_tag(member, part)), None)
        if tagged is not None:
            current = tagged
            continue
        path.append(part)
        parent = next((member for member in members if _is_model(member)), None)
        current = _child(parent, part) if isinstance(part, str) else _item(current)
    return path, parent


def _members(kind: Any) -> list[Any]:
    """The alternatives of a type: of ``Annotated[A | B, ...]`` A and B, of anything else itself."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, types.UnionType):
        return [member for arg in get_args(kind) for member in _members(arg) if arg is not type(None)]
    return [kind]


def _has_tag(model: Any, tag: int | str) -> bool:
    if not _is_model(model):
        return False
    return any(get_args(field.annotation) == (tag,) for field in model.model_fields.values())


def _child(model: Any, name: str) -> Any:
    if not _is_model(model):
        return None
    fields = {field.alias or key: field for key, field in model.model_fields.items()}
    return fields[name].annotation if name in fields else None


def _item(kind: Any) -> Any:
    args = [arg for member in _members(kind) for arg in get_args(member) if arg is not Ellipsis]
    return args[0] if args else None


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
