"""Where in a body pydantic's complaint is, and in which words the API says it."""

import re
import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Path = list[int | str]
_VALUE_SHOWN_MAX = 120
_NAMES_A_FIELD = re.compile(r"^([a-z_]+(?:\.[a-z_]+)*) ")  # how the sentences of our validators begin


def complaint(item: ErrorDetails, kind: Any) -> tuple[Path, str]:
    """(path of the field without union tags, sentence) of one error of validating ``kind``."""
    path, parent, current = _walk(kind, item["loc"])
    if item["type"].startswith("union_tag") and not path:
        return _untagged(item, kind)
    own = item.get("ctx", {}).get("error")
    if item["type"] == "value_error" and isinstance(own, ValueError):
        named = _named(str(own), current)
        if named:  # a validator of the whole model says itself which field it is about
            return path + named, f"{own}."
    return path, _sentence(item, parent)


def _untagged(item: ErrorDetails, kind: Any) -> tuple[Path, str]:
    """The body itself is a union and names none of its members: the discriminator is at fault."""
    context = item.get("ctx", {})
    name = str(context.get("discriminator", "type")).strip("'")
    allowed = ", ".join(_tags(kind, name))
    if item["type"] == "union_tag_not_found":
        return [name], f"{name!r} is required. Allowed: {allowed}."
    return [name], f"Unknown {name} {_shown(str(context.get('tag')))}. Allowed: {allowed}."


def _tags(kind: Any, name: str) -> list[str]:
    fields = [member.model_fields[name] for member in _members(kind) if _is_model(member)]
    return [str(tag) for field in fields for tag in get_args(field.annotation)]


def _named(sentence: str, kind: Any) -> Path:
    """The path that a sentence begins with, ``collection.episodes 10: ...``, if ``kind`` has such a field."""
    found = _NAMES_A_FIELD.match(sentence)
    if found is None:
        return []
    names = found[1].split(".")
    reached = [kind]
    for part in names:
        models = [member for one in reached for member in _members(one) if _is_model(member)]
        reached = [child for model in models if (child := _child(model, part)) is not None]
        if not reached:
            return []
    return [*names]


def _sentence(item: ErrorDetails, parent: Any) -> str:
    name = str(item["loc"][-1]) if item["loc"] else "body"
    if item["type"] == "extra_forbidden":
        return f"Unknown field {name!r}. Allowed: {', '.join(_names(parent))}."
    if item["type"] == "missing":
        return f"{name!r} is required."
    return f"{item['msg']}; got {_shown(item['input'])}."


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _VALUE_SHOWN_MAX else shown[:_VALUE_SHOWN_MAX] + "…"


def _names(model: Any) -> list[str]:
    if not _is_model(model):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _walk(kind: Any, loc: tuple[int | str, ...]) -> tuple[Path, Any, Any]:
    """Follow an error's location: (location without union tags, model that holds its last part, type of that part)."""
    path: Path = []
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
    return path, parent, current


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
