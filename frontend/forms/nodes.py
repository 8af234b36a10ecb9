"""What a form is made of: leaves hold one value, groups name theirs, choices pick a group, rows repeat one.

A switch is a group that may be null: on or off.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

ON, OFF = "on", "off"  # of a switch; an empty text is off, as browsers send it


class LeafType(StrEnum):
    """How a value is written in a text field."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"  # yes or no
    CHOICE = "choice"  # one of a few words
    LIST = "list"  # several values, separated by commas
    MAP = "map"  # key = value, one a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One field. ``name`` is its path with dots; a field that is left empty means ``default``, unless required.

    ``own_default`` is that of the field's model, which holds as soon as a neighbour is set: a group may have another
    default as a whole. ``choices``: all there may be, of a list too. ``says`` is the field's JSON schema, for
    bounds and pattern.
    """

    name: str
    label: str
    help: str
    unit: str
    type: LeafType
    required: bool
    nullable: bool
    default: Any
    own_default: Any
    choices: tuple[str, ...] = ()
    item: LeafType = LeafType.TEXT  # of a list
    says: dict[str, Any] = field(default_factory=dict)

    @property
    def none_is_a_word(self) -> bool:
        """Null has to be typed, because an empty field means something else."""
        return self.nullable and self.default is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Fields under one name; the form itself has an empty one."""

    name: str
    label: str
    help: str
    required: bool
    members: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A group that is there when the field of its own name says ``on``, else null, which is its default."""

    name: str
    label: str
    help: str
    group: Group
    required = False

    def is_on(self, texts: Mapping[str, str]) -> bool:
        return texts.get(self.name, "").strip() == ON


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several groups under the same name; the field ``tag`` says which."""

    name: str
    label: str
    help: str
    required: bool
    tag: str
    options: dict[str, Group]

    @property
    def tag_name(self) -> str:
        return joined(self.name, self.tag)

    def chosen(self, texts: dict[str, str]) -> Group:
        """The option that is asked for; the first, if that is none."""
        return self.options.get(texts.get(self.tag_name, ""), next(iter(self.options.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A list of groups: ``name.0.id``, ``name.1.id``; ``row`` has the names of the first one."""

    name: str
    label: str
    help: str
    required: bool
    row: Group
    fewest: int
    most: int


Node = Leaf | Group | Switch | Choice | Rows


def joined(name: str, part: str | int) -> str:
    return f"{name}.{part}" if name else str(part)


def leaves(node: Node) -> Iterator[Leaf]:
    """Every leaf of every option, tags left out; of rows those of the first."""
    if isinstance(node, Leaf):
        yield node
        return
    below: tuple[Node, ...]
    if isinstance(node, Choice):
        below = tuple(node.options.values())
    elif isinstance(node, Switch):
        below = (node.group,)
    else:
        below = (node.row,) if isinstance(node, Rows) else node.members
    for member in below:
        yield from leaves(member)
