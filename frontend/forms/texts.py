"""Values as they are typed, and back: each is the other's exact inverse."""

import json
import math
from typing import Any

from frontend.forms.nodes import Leaf, LeafType

NONE = "none"
YES, NO = "yes", "no"
_MARKS = ('"', "[", "{")  # a text that begins with one of these is read as JSON, if it is JSON
_LIST_MARKS = (",", "\n")
_BRACKETS_MAX = 100  # of JSON in one field; nesting has to stay shallow


def to_text(leaf: Leaf, value: Any) -> str:
    """What stands in the field; empty for the default of a field that needs not be given."""
    if not leaf.required and value == leaf.default:
        return ""
    if value is None:
        return NONE if leaf.none_is_a_word else ""
    return written(leaf, value)


def written(leaf: Leaf, value: Any) -> str:
    """The value in words, the default too. Null is ``none``."""
    if value is None:
        return NONE
    if leaf.type == LeafType.LIST:
        return _list_text(leaf, value)
    if leaf.type == LeafType.MAP:
        return _map_text(value)
    return _scalar_text(leaf, leaf.type, value)


def from_text(leaf: Leaf, text: str) -> Any:
    """The value of a field that is not empty. What cannot be read stays text: the model says what is wrong with it."""
    typed = text.strip()
    if leaf.none_is_a_word and typed == NONE:
        return None
    if leaf.type == LeafType.LIST:
        return _list(leaf, typed)
    if leaf.type == LeafType.MAP:
        return _map(typed)
    return _scalar(leaf.type, typed)


def is_blank(text: str | None) -> bool:
    return text is None or not text.strip()


def _scalar_text(leaf: Leaf, kind: LeafType, value: Any) -> str:
    if kind == LeafType.FLAG:
        return YES if value else NO
    if kind in (LeafType.INTEGER, LeafType.NUMBER):
        return str(value)
    if leaf.none_is_a_word and value == NONE:
        return json.dumps(value)
    return value if _is_plain(value) else json.dumps(value)


def _scalar(kind: LeafType, typed: str) -> Any:
    if kind == LeafType.FLAG:
        return {YES: True, NO: False}.get(typed.lower(), typed)
    if kind == LeafType.INTEGER:
        return _integer(typed)
    if kind == LeafType.NUMBER:
        return _number(typed)
    found = _json(typed, str)
    return typed if found is None else found


def _integer(typed: str) -> Any:
    """``1e4`` is ten thousand."""
    try:
        return int(typed)
    except ValueError:
        number = _number(typed)
        whole = isinstance(number, float) and math.isfinite(number) and number == int(number)
        return int(number) if whole else number


def _number(typed: str) -> Any:
    try:
        return float(typed)
    except ValueError:
        return typed


def _list_text(leaf: Leaf, values: Any) -> str:
    texts = [_scalar_text(leaf, leaf.item, value) for value in values]
    if texts and all(_is_plain(text) and not any(mark in text for mark in _LIST_MARKS) for text in texts):
        return ", ".join(texts)
    return json.dumps(list(values))


def _list(leaf: Leaf, typed: str) -> Any:
    """``[]`` is the empty list."""
    found = _json(typed, list)
    if found is not None:
        return found
    parts = [part.strip() for part in typed.replace("\n", ",").split(",")]
    return [_scalar(leaf.item, part) for part in parts if part]


def _map_text(values: dict[str, str]) -> str:
    pairs = list(values.items())
    if pairs and all(_is_plain(text) and "=" not in text for pair in pairs for text in pair):
        return "\n".join(f"{key} = {value}" for key, value in pairs)
    return json.dumps(values)


def _map(typed: str) -> Any:
    found = _json(typed, dict)
    if found is not None:
        return found
    pairs = {}
    for line in filter(None, (part.strip() for part in typed.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            return typed
        pairs[key.strip()] = value.strip()
    return pairs


def _is_plain(text: str) -> bool:
    """It survives a text field as it is, and nobody takes it for JSON."""
    return bool(text) and text == text.strip() and text.isprintable() and not text.startswith(_MARKS)


def _json(typed: str, kind: type) -> Any:
    """None: it is to be taken as it stands, because it is no JSON of this kind or nothing that text can hold."""
    if not typed.startswith(_MARKS) or typed.count("[") + typed.count("{") > _BRACKETS_MAX:
        return None
    try:
        found = json.loads(typed)
        json.dumps(found, ensure_ascii=False).encode()  # halves of surrogate pairs cannot be written
    except ValueError:
        return None
    return found if isinstance(found, kind) else None
