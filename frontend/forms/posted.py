"""From what was typed to the specification, and from a specification to what would be typed."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from frontend.forms.nodes import ON, Choice, Group, Leaf, Node, Rows, Switch, joined
from frontend.forms.texts import from_text, is_blank, to_text

Texts = dict[str, str]
_MISSING = object()
_ROWS_SHOWN_MAX = 200


def spec_of(form: Node, texts: Mapping[str, str]) -> Any:
    """The specification in JSON: what was set, and what has to be. Fields that are left empty are not in it."""
    value = _read(form, dict(texts))
    return {} if value is _MISSING else value


def texts_of(form: Node, spec: Any) -> Texts:
    """What the form says for a specification; its fields at their default stay empty."""
    texts: Texts = {}
    _write(form, spec, texts)
    return {name: text for name, text in texts.items() if text}


def row_numbers(rows: Rows, texts: Mapping[str, str]) -> list[int]:
    """Which rows were sent, in their order; never fewer than there have to be."""
    pattern = re.compile(rf"^{re.escape(rows.name)}\.(\d{{1,4}})\.")
    found = sorted({int(match[1]) for name in texts if (match := pattern.match(name))})[:_ROWS_SHOWN_MAX]
    return found or list(range(max(rows.fewest, 0)))


def row_of(rows: Rows, number: int) -> Group:
    """The row's group under its own names."""
    return _renamed(rows.row, joined(rows.name, 0), joined(rows.name, number))


def _read(node: Node, texts: Texts) -> Any:
    match node:
        case Leaf():
            text = texts.get(node.name)
            return _MISSING if is_blank(text) else from_text(node, text or "")
        case Group():
            return _read_group(node, texts)
        case Switch():
            return _read_group(node.group, texts) if node.is_on(texts) else _MISSING
        case Choice():
            tag = texts.get(node.tag_name, "").strip()
            if not tag and not node.required:
                return _MISSING
            found = _read_group(node.chosen(texts), texts) if tag in node.options else {}
            return {node.tag: tag, **found} if tag else {}
        case Rows():
            every = [_read_group(row_of(node, number), texts) for number in row_numbers(node, texts)]
            return every if every or node.required else _MISSING


def _read_group(group: Group, texts: Texts) -> Any:
    """Where a neighbour is set, fields whose empty form means the whole group's default are sent as well."""
    found = {_key(member): value for member in group.members if (value := _read(member, texts)) is not _MISSING}
    if found and not group.required:
        for member in group.members:
            if isinstance(member, Leaf) and member.default != member.own_default:
                found.setdefault(_key(member), member.default)
    return found if found or group.required else _MISSING


def _write(node: Node, value: Any, texts: Texts) -> None:
    """Tolerates a specification of an earlier release: what is not in it stays empty."""
    match node:
        case Leaf():
            texts[node.name] = to_text(node, value)
        case Group():
            _write_group(node, value, texts)
        case Switch() if isinstance(value, dict):
            texts[node.name] = ON
            _write_group(node.group, value, texts)
        case Choice() if isinstance(value, dict) and value.get(node.tag) in node.options:
            texts[node.tag_name] = value[node.tag]
            _write_group(node.options[value[node.tag]], value, texts)
        case Rows() if isinstance(value, list | tuple):
            for number, row in enumerate(value):
                _write_group(row_of(node, number), row, texts)


def _write_group(group: Group, value: Any, texts: Texts) -> None:
    if not isinstance(value, dict):
        return
    for member in group.members:
        if _key(member) in value:
            _write(member, value[_key(member)], texts)
        elif isinstance(member, Leaf) and not member.required:
            _write(member, member.own_default, texts)  # where the group is given, the field's own default holds


def _key(node: Node) -> str:
    return node.name.rpartition(".")[2]


def _renamed(node: Any, old: str, new: str) -> Any:
    """The same node under another name."""
    name = new + node.name[len(old) :]
    if isinstance(node, Group):
        return replace(node, name=name, members=tuple(_renamed(member, old, new) for member in node.members))
    if isinstance(node, Choice):
        options = {tag: _renamed(option, old, new) for tag, option in node.options.items()}
        return replace(node, name=name, options=options)
    if isinstance(node, Switch):
        return replace(node, name=name, group=_renamed(node.group, old, new))
    if isinstance(node, Rows):
        return replace(node, name=name, row=_renamed(node.row, old, new))
    return replace(node, name=name)
