"""Ways through a form: everything it may ever ask, and what it asks where these options are chosen."""

from collections.abc import Iterator

from frontend.forms.layout import pattern_of
from frontend.forms.nodes import OFF, ON, Choice, Group, Leaf, Node, Rows, Switch
from frontend.forms.posted import Texts, row_numbers, row_of
from frontend.forms.texts import is_blank
from frontend.forms.words import default_words


def names_of(node: Node) -> Iterator[str]:
    """Names of all fields of all options; of rows those of the first."""
    match node:
        case Leaf():
            yield node.name
        case Group():
            for member in node.members:
                yield from names_of(member)
        case Switch():
            yield node.name
            yield from names_of(node.group)
        case Choice():
            yield node.tag_name
            for option in node.options.values():
                yield from names_of(option)
        case Rows():
            yield from names_of(node.row)


def effective_texts(node: Node, texts: Texts) -> Iterator[tuple[str, str]]:
    """Every field of the chosen options with what it comes to: what was typed, else its default in words."""
    match node:
        case Leaf():
            text = texts.get(node.name, "")
            yield node.name, default_words(node) if is_blank(text) else text.strip()
        case Group():
            for member in node.members:
                yield from effective_texts(member, texts)
        case Switch():
            is_on = node.is_on(texts)
            yield node.name, ON if is_on else OFF
            if is_on:
                yield from effective_texts(node.group, texts)
        case Choice():
            chosen = node.chosen(texts)
            yield node.tag_name, next(tag for tag, option in node.options.items() if option is chosen)
            yield from effective_texts(chosen, texts)
        case Rows():
            for number in row_numbers(node, texts):
                yield from effective_texts(row_of(node, number), texts)


def chosen_tags(node: Node, texts: Texts) -> Texts:
    """The choices as they are shown: the first option where nothing is chosen yet."""
    tags = set(_tag_names(node))
    return {name: tag for name, tag in effective_texts(node, texts) if name in tags}


def parked_texts(form: Choice, texts: Texts, shown: set[str]) -> Iterator[tuple[str, str]]:
    """What was typed into fields that are not on the page now: it comes back with them."""
    known = {pattern_of(name) for name in names_of(form)}
    for name, text in texts.items():
        if name not in shown and pattern_of(name) in known and not is_blank(text):
            yield name, text


def _tag_names(node: Node) -> Iterator[str]:
    match node:
        case Group():
            for member in node.members:
                yield from _tag_names(member)
        case Switch():
            yield from _tag_names(node.group)
        case Choice():
            yield node.tag_name
            for option in node.options.values():
                yield from _tag_names(option)
