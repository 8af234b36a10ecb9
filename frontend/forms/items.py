"""What the templates of a form show: fields, choices and rows with what was typed, in the sections of the page."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from frontend.forms.offers import Box, Offer, Offers


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundField:
    """One field of the page. ``was``: what it was in the job that is cloned, if it differs now or may later."""

    shape = "field"
    name: str
    label: str
    help: str
    unit: str
    widget: str  # text, area, select or boxes
    text: str
    placeholder: str
    mode: str  # of the keyboard on a phone
    required: bool
    wide: bool
    error: str
    was: str | None
    changed: bool
    choices: tuple[Offer, ...] = ()
    offers: Offers = field(default_factory=Offers)
    boxes: tuple[Box, ...] = ()

    @property
    def id(self) -> str:
        return f"f-{self.name}"

    @property
    def described_by(self) -> str:
        return f"{self.id}-help {self.id}-error" if self.error else f"{self.id}-help"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSwitch:
    """A group that is on or off; ``parts``: its fields, None while it is off."""

    shape = "switch"
    wide = True
    name: str
    label: str
    help: str
    parts: "Parts | None"
    error: str
    was: str | None
    changed: bool

    @property
    def id(self) -> str:
        return f"f-{self.name}"

    @property
    def described_by(self) -> str:
        return f"{self.id}-help {self.id}-error" if self.error else f"{self.id}-help"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOption:
    value: str
    label: str
    help: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundChoice:
    """Cards to choose from; the fields of the chosen one follow in its section."""

    shape = "choice"
    wide = True
    name: str
    label: str
    help: str
    tag_name: str
    options: tuple[BoundOption, ...]
    error: str
    was: str | None
    changed: bool

    @property
    def id(self) -> str:
        return f"f-{self.tag_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Fields that most people leave as they are."""

    name: str
    title: str
    help: str
    items: tuple[BoundField, ...]
    set_count: int

    @property
    def id(self) -> str:
        return f"fold-{self.name}"

    @property
    def is_open(self) -> bool:
        return any(item.error or item.changed for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    number: int
    parts: "Parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRows:
    """A list of groups that may be made longer or shorter."""

    shape = "rows"
    wide = True
    name: str
    label: str
    help: str
    error: str
    rows: tuple[BoundRow, ...]
    may_add: bool
    may_remove: bool

    @property
    def id(self) -> str:
        return f"f-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """``items`` are seen at once."""

    items: "tuple[BoundField | BoundSwitch | BoundChoice | BoundRows, ...]"
    folds: tuple[Fold, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """``is_roomy``: few fields with long values, two in a line."""

    number: int
    title: str
    is_roomy: bool
    parts: Parts


def labels_of(sections: Iterable[Section]) -> dict[str, tuple[str, str]]:
    """Every field of the page: its name -> its element's id and what it is called, for sentences elsewhere."""
    found: dict[str, tuple[str, str]] = {}
    for section in sections:
        found.update(_labels(section.parts))
    return found


def _labels(parts: Parts) -> Iterator[tuple[str, tuple[str, str]]]:
    for item in [*parts.items, *(item for fold in parts.folds for item in fold.items)]:
        yield getattr(item, "tag_name", item.name), (item.id, item.label)
        if isinstance(item, BoundSwitch) and item.parts is not None:
            yield from _labels(item.parts)
        if isinstance(item, BoundRows):
            for row in item.rows:
                for name, (id_, label) in _labels(row.parts):
                    yield name, (id_, f"{label}, {item.label.lower()} {row.number + 1}")
