"""What a form says of a field beside its explanation: its default, its bounds, the values of a list."""

from frontend.forms.nodes import Leaf, LeafType
from frontend.forms.offers import Box, Offer, Offers
from frontend.forms.texts import NO, NONE, YES, from_text, is_blank, written


def default_words(leaf: Leaf) -> str:
    """The default as somebody would type it; empty where there is none."""
    if leaf.required or leaf.default is None:
        return ""
    if leaf.type in (LeafType.LIST, LeafType.MAP) and not leaf.default:
        return ""
    return written(leaf, leaf.default)


def choices_of(leaf: Leaf, offers: Offers, text: str) -> tuple[Offer, ...]:
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
        label = next((f"{one.label} · default" for one in found if one.value == words), "Default")
        found = [Offer(value="", label=label), *(one for one in found if one.value != words)]
        text = "" if text == words else text
    if text and text not in {one.value for one in found}:
        found.append(Offer(value=text, label=f"{text} (not available)"))
    return tuple(found)


def boxes_of(leaf: Leaf, text: str) -> tuple[Box, ...]:
    """A list of a few words as boxes to tick, in the model's order; one that is not offered any more stays."""
    found = leaf.default if is_blank(text) else from_text(leaf, text)
    ticked = [str(value) for value in found] if isinstance(found, list | tuple) else []
    words = dict.fromkeys([*leaf.choices, *ticked])
    return tuple(Box(value=word, is_ticked=word in ticked) for word in words)


def in_order(leaf: Leaf, text: str) -> str:
    """What the boxes that a text ticks say together."""
    return ", ".join(box.value for box in boxes_of(leaf, text) if box.is_ticked)


def help_of(leaf: Leaf, hint: str) -> str:
    """Its explanation, what is allowed, and ``hint``: what is so at this moment."""
    none = '"none" turns it off.' if leaf.none_is_a_word else ""
    commas = "Separated by commas." if leaf.type == LeafType.LIST and not leaf.choices else ""
    return " ".join(filter(None, (leaf.help, commas, _bounds(leaf), none, hint)))


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
