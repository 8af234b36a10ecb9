"""A form with what was typed into it, ready to be shown section by section."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from frontend.forms.items import (
    BoundChoice,
    BoundField,
    BoundOption,
    BoundRow,
    BoundRows,
    BoundSwitch,
    Fold,
    Parts,
    Section,
)
from frontend.forms.layout import AT_ONCE, HIDDEN, ROOMY, SECTIONS, WIDE, pattern_of, place_of, section_of
from frontend.forms.nodes import OFF, ON, Choice, Group, Leaf, LeafType, Node, Rows, Switch
from frontend.forms.offers import Offering, Offers
from frontend.forms.posted import Texts, row_numbers, row_of
from frontend.forms.texts import is_blank
from frontend.forms.words import boxes_of, choices_of, default_words, help_of, in_order

Items = list[BoundField | BoundSwitch | BoundChoice | BoundRows]


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
                is_roomy=number < ROOMY,
                parts=self._parts(sorted(found[number], key=lambda node: place_of(node.name)), title="More settings"),
            )
            for place, number in enumerate(sorted(found), start=1)
        )

    def _parts(self, members: list[Node], *, title: str) -> Parts:
        """``title``: of the fold with fields that belong to no group."""
        items: Items = []
        loose: list[BoundField] = []
        folds: list[Fold] = []
        for member in members:
            match member:
                case Leaf() if _at_once(member):
                    items.append(self._field(member))
                case Leaf():
                    loose.append(self._field(member))
                case Group():
                    own, more = self._group(member)
                    items += own
                    folds += more
                case Switch():
                    items.append(self._switch(member))
                case Choice():
                    items.append(self._choice(member))
                    own, more = self._group(member.chosen(self.texts), label=member.label)
                    items += own
                    folds += more
                case Rows():
                    items.append(self._rows(member))
        if loose:
            folds.insert(0, _fold(title, loose))
        return Parts(items=tuple(items), folds=tuple(folds))

    def _group(self, group: Group, label: str = "") -> tuple[Items, list[Fold]]:
        """What is seen at once, and folds with the rest: one of its own, and those of groups in it."""
        title = f"{label}, {group.label}" if label else group.label
        parts = self._parts(list(group.members), title=title)
        own = [replace(fold, help=group.help) if fold.title == title else fold for fold in parts.folds]
        return list(parts.items), own

    def _switch(self, switch: Switch) -> BoundSwitch:
        is_on = switch.is_on(self.texts)
        own, folds = self._group(switch.group) if is_on else ([], [])
        was = None if self.parent is None else self.parent.get(switch.name)
        return BoundSwitch(
            name=switch.name,
            label=switch.label,
            help=switch.help,
            parts=Parts(items=tuple(own), folds=tuple(folds)) if is_on else None,
            error=self.errors.get(switch.name, ""),
            was=was,
            changed=was not in (None, ON if is_on else OFF),
        )

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
        widget = _widget(leaf, offers, text)
        choices = choices_of(leaf, offers, text) if widget != "boxes" else ()
        default, was = default_words(leaf), None if self.parent is None else self.parent.get(leaf.name)
        now = default if is_blank(text) else text.strip()
        if widget == "boxes":
            now, was = in_order(leaf, now), None if was is None else in_order(leaf, was)
        return BoundField(
            name=leaf.name,
            label=leaf.label,
            help=help_of(leaf, self.offering.hints.get(pattern, "")),
            unit=self.offering.units.get(pattern, leaf.unit),
            widget=widget,
            text="" if choices and text == default else text,
            placeholder=default,
            mode={LeafType.INTEGER: "numeric", LeafType.NUMBER: "decimal"}.get(leaf.type, "text"),
            required=leaf.required,
            wide=pattern in WIDE or widget in ("area", "boxes"),
            error=self.errors.get(leaf.name, ""),
            was=was,
            changed=was is not None and was != now,
            choices=choices,
            offers=offers,
            boxes=boxes_of(leaf, text) if widget == "boxes" else (),
        )


def _widget(leaf: Leaf, offers: Offers, text: str) -> str:
    if leaf.type == LeafType.LIST and leaf.choices:
        return "boxes"
    if leaf.type == LeafType.MAP:
        return "area"
    return "select" if offers.closed and choices_of(leaf, offers, text) else "text"


def _at_once(leaf: Leaf) -> bool:
    return leaf.required or pattern_of(leaf.name) in AT_ONCE


def _fold(title: str, items: list[BoundField]) -> Fold:
    count = sum(not is_blank(item.text) for item in items)
    return Fold(name=items[0].name, title=title, help="", items=tuple(items), set_count=count)
