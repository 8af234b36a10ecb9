"""A form with what was typed into it: what the templates show, section by section."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from frontend.forms.layout import AT_ONCE, HIDDEN, SECTIONS, WIDE, pattern_of, place_of, section_of
from frontend.forms.nodes import Choice, Group, Leaf, LeafType, Node, Rows
from frontend.forms.offers import Offer, Offering, Offers
from frontend.forms.posted import Texts, row_numbers, row_of
from frontend.forms.texts import NO, NONE, YES, is_blank, written


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundField:
    """One field of the page. ``was``: what it was in the job that is cloned, if it differs now or may later."""

    shape = "field"
    name: str
    label: str
    help: str
    unit: str
    widget: str  # text, area or select
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
    items: "tuple[BoundField | BoundChoice, ...]"
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

    items: "tuple[BoundField | BoundChoice | BoundRows, ...]"
    folds: tuple[Fold, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    number: int
    title: str
    parts: Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What is known about a form beside its fields: texts, errors by field, the cloned job's texts, offers.

    ``parent`` holds every value in words, defaults too; None where nothing is cloned.
    """

    texts: Texts
    errors: Mapping[str, str]
    offering: Offering
    parent: Mapping[str, str] | None = None

    def sections(self, form: Choice) -> tuple[Section, ...]:
        """The chosen kind's fields in the sections of the page; empty sections are left out."""
        found: dict[int, list[Node]] = {}
        for member in form.chosen(self.texts).members:
            if member.name not in HIDDEN:
                found.setdefault(section_of(member.name), []).append(member)
        return tuple(
            Section(
                number=place,
                title=SECTIONS[number].title,
                parts=self._parts(sorted(found[number], key=lambda node: place_of(node.name)), title="More"),
            )
            for place, number in enumerate(sorted(found), start=1)
        )

    def _parts(self, members: list[Node], *, title: str) -> Parts:
        items, loose, folds = [], [], []
        for member in members:
            match member:
                case Leaf():
                    (items if _at_once(member) else loose).append(self._field(member))
                case Group():
                    own, more = self._group(member)
                    items += own
                    folds += more
                case Choice():
                    items.append(self._choice(member))
                    own, more = self._group(member.chosen(self.texts), label=member.label)
                    items += own
                    folds += more
                case Rows():
                    items.append(self._rows(member))
        if loose:
            folds.insert(0, _fold(members[0].name, title, "", loose))
        return Parts(items=tuple(items), folds=tuple(folds))

    def _group(self, group: Group, label: str = "") -> tuple[list[BoundField | BoundChoice | BoundRows], list[Fold]]:
        """What is seen at once, and one fold with the rest."""
        title = f"{label}, {group.label}" if label else group.label
        items: list[BoundField | BoundChoice | BoundRows] = []
        folded: list[BoundField] = []
        folds: list[Fold] = []
        for member in group.members:
            match member:
                case Leaf():
                    (items if _at_once(member) else folded).append(self._field(member))  # type: ignore[arg-type]
                case Group():
                    own, more = self._group(member)
                    items += own
                    folds += more
                case _:
                    parts = self._parts([member], title=title)
                    items += parts.items
                    folds += parts.folds
        if folded:
            folds.insert(0, _fold(group.name, title, group.help, folded))
        return items, folds

    def _rows(self, rows: Rows) -> BoundRows:
        numbers = row_numbers(rows, self.texts)
        bound = []
        for number in numbers:
            own, folds = self._group(row_of(rows, number))
            bound.append(BoundRow(number=number, parts=Parts(items=tuple(own), folds=tuple(folds))))
        return BoundRows(
            name=rows.name,
            label=rows.label,
            help=rows.help,
            error=self.errors.get(rows.name, ""),
            rows=tuple(bound),
            may_add=len(numbers) < rows.most,
            may_remove=len(numbers) > max(rows.fewest, 1),
        )

    def _choice(self, choice: Choice) -> BoundChoice:
        chosen = choice.chosen(self.texts)
        options = tuple(
            BoundOption(value=tag, label=option.label, help=option.help, chosen=option is chosen)
            for tag, option in choice.options.items()
        )
        was = None if self.parent is None else self.parent.get(choice.tag_name)
        now = next(option.value for option in options if option.chosen)
        error = self.errors.get(choice.tag_name, "") or self.errors.get(choice.name, "")
        return BoundChoice(
            name=choice.name,
            label=choice.label,
            help=choice.help,
            tag_name=choice.tag_name,
            options=options,
            error=error,
            was=was,
            changed=was not in (None, now),
        )

    def _field(self, leaf: Leaf) -> BoundField:
        pattern, text = pattern_of(leaf.name), self.texts.get(leaf.name, "")
        offers = self.offering.offers.get(pattern, Offers())
        choices = _choices(leaf, offers, text)
        was = None if self.parent is None else self.parent.get(leaf.name, default_words(leaf))
        now = default_words(leaf) if is_blank(text) else text.strip()
        hint = self.offering.hints.get(leaf.name, "") or self.offering.hints.get(pattern, "")
        return BoundField(
            name=leaf.name,
            label=leaf.label,
            help=" ".join(filter(None, (leaf.help, _bounds(leaf), _none_words(leaf), hint))),
            unit=self.offering.units.get(pattern, leaf.unit),
            widget="select" if choices and offers.closed else "area" if leaf.type == LeafType.MAP else "text",
            text=text,
            placeholder="" if leaf.required else default_words(leaf),
            mode={LeafType.INTEGER: "numeric", LeafType.NUMBER: "decimal"}.get(leaf.type, "text"),
            required=leaf.required,
            wide=pattern in WIDE or leaf.type == LeafType.MAP,
            error=self.errors.get(leaf.name, ""),
            was=was,
            changed=was is not None and was != now,
            choices=choices,
            offers=offers,
        )


def default_words(leaf: Leaf) -> str:
    """The default as somebody would type it; empty where there is none."""
    if leaf.required or leaf.default is None:
        return ""
    if leaf.type in (LeafType.LIST, LeafType.MAP) and not leaf.default:
        return ""
    return written(leaf, leaf.default)


def hidden_texts(form: Choice, texts: Texts, shown: set[str]) -> Iterator[tuple[str, str]]:
    """What was typed into fields that are not on the page now: it comes back with them."""
    known = {pattern_of(name) for name in _names(form)}
    for name, text in texts.items():
        if name not in shown and pattern_of(name) in known and not is_blank(text):
            yield name, text


def shown_names(sections: tuple[Section, ...]) -> set[str]:
    """Names of all fields on the page."""
    return {name for section in sections for name in _shown(section.parts)}


def _shown(parts: Parts) -> Iterator[str]:
    for item in [*parts.items, *(item for fold in parts.folds for item in fold.items)]:
        if isinstance(item, BoundRows):
            for row in item.rows:
                yield from _shown(row.parts)
        else:
            yield item.tag_name if isinstance(item, BoundChoice) else item.name


def _names(node: Node) -> Iterator[str]:
    match node:
        case Leaf():
            yield node.name
        case Group():
            for member in node.members:
                yield from _names(member)
        case Choice():
            yield node.tag_name
            for option in node.options.values():
                yield from _names(option)
        case Rows():
            yield from _names(node.row)


def _at_once(leaf: Leaf) -> bool:
    return leaf.required or pattern_of(leaf.name) in AT_ONCE


def _fold(name: str, title: str, help_: str, items: list[BoundField]) -> Fold:
    count = sum(not is_blank(item.text) for item in items)
    return Fold(name=name, title=title, help=help_, items=tuple(items), set_count=count)


def _choices(leaf: Leaf, offers: Offers, text: str) -> tuple[Offer, ...]:
    """What a list shows. A value that is not offered any more stays, so that nothing typed is lost."""
    found = list(offers.choices)
    if leaf.type == LeafType.FLAG:
        found = [Offer(value=YES, label="Yes"), Offer(value=NO, label="No")]
    elif leaf.type == LeafType.CHOICE:
        found = [Offer(value=value, label=value.replace("_", " ")) for value in leaf.choices]
        found += [Offer(value=NONE, label="none")] * leaf.none_is_a_word
    if not found or not offers.closed:
        return tuple(found)
    if leaf.type in (LeafType.FLAG, LeafType.CHOICE) and not leaf.required:
        words = default_words(leaf)
        default = next(one for one in found if one.value == words)
        found = [Offer(value="", label=f"{default.label} (default)"), *(one for one in found if one is not default)]
        text = "" if text == words else text
    if text and text not in {one.value for one in found}:
        found.append(Offer(value=text, label=f"{text} (not available)"))
    return tuple(found)


def _bounds(leaf: Leaf) -> str:
    """``1 to 64.``, from the model."""
    if leaf.type not in (LeafType.INTEGER, LeafType.NUMBER):
        return ""
    low, high = leaf.says.get("minimum"), leaf.says.get("maximum")
    above, below = leaf.says.get("exclusiveMinimum"), leaf.says.get("exclusiveMaximum")
    least = f"{_short(low)}" if low is not None else f"above {_short(above)}" if above is not None else ""
    most = f"{_short(high)}" if high is not None else f"below {_short(below)}" if below is not None else ""
    if least and most:
        return f"{least} to {most}.".capitalize()
    return f"At least {least}.".replace("At least above", "Above") if least else ""


def _short(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) or (abs(bound) < 1e15 and bound == int(bound)) else f"{bound:g}"


def _none_words(leaf: Leaf) -> str:
    return '"none" turns it off.' if leaf.none_is_a_word else ""
