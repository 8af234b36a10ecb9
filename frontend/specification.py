"""A job's specification to read: its settings by dotted path, in groups, and what differs from another one's."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NOT_COMPARED = frozenset({"cloned_from"})  # of every clone it differs
_GENERAL = "General"
_WORDS = {
    "rl": "RL",
    "lr": "learning rate",
    "pca": "PCA",
    "id": "ID",
    "gae": "GAE",
    "kl": "KL",
    "eps": "epsilon",
    "lora": "LoRA",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value of a specification. ``path`` is dotted, as in ``training.steps``."""

    path: str
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Settings that belong together: one part of a specification."""

    title: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``kind``: ``added``, ``removed`` or ``changed``; the side where a path is missing is empty."""

    path: str
    kind: str
    old: str
    new: str


def setting_groups(spec: Mapping[str, Any]) -> tuple[Group, ...]:
    """What is no part of a part comes first, then each part in the order of the specification."""
    general = [_setting(name, name, value) for name, value in spec.items() if not _is_part(value)]
    groups = [Group(title=_GENERAL, settings=tuple(general))] if general else []
    for name, value in spec.items():
        if _is_part(value):
            inner = [_setting(f"{name}.{path}", path, leaf) for path, leaf in leaves(value)]
            groups.append(Group(title=words(name), settings=tuple(inner)))
    return tuple(groups)


def spec_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """What one would edit in ``old`` to get ``new``, by path; equal specifications have none."""
    before, after = dict(_compared(old)), dict(_compared(new))
    changes = []
    for path in [*before, *(path for path in after if path not in before)]:
        if path not in after:
            changes.append(Change(path=path, kind="removed", old=written(before[path]), new=""))
        elif path not in before:
            changes.append(Change(path=path, kind="added", old="", new=written(after[path])))
        elif before[path] != after[path] or type(before[path]) is not type(after[path]):
            changes.append(Change(path=path, kind="changed", old=written(before[path]), new=written(after[path])))
    return tuple(changes)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of everything that is no object with members; lists of plain values are one value."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def words(name: str) -> str:
    """``batch_size`` as ``Batch size``."""
    text = " ".join(_WORDS.get(part, part) for part in name.split("_"))
    return text[:1].upper() + text[1:]


def written(value: Any) -> str:
    """A value as people write it: text bare, lists with commas, nothing as ``none``, the rest as JSON."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and not any(isinstance(item, (Mapping, list)) for item in value):
        return ", ".join(written(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _compared(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((path, value) for path, value in leaves(spec) if path not in NOT_COMPARED)


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(item, Mapping) for item in value))


def _setting(path: str, name: str, value: Any) -> Setting:
    return Setting(path=path, name=words(name.replace(".", ": ").strip("[]")), value=written(value))
