"""What a field offers: values a tenant may choose from, words to start with, and a hint of the moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One value and how it is called; an empty ``value`` leaves the field at its default."""

    value: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One value of a list that takes only a few."""

    value: str
    is_ticked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """For one field. ``closed``: other values are refused anyway, so it is a list to choose from.

    ``none``: what to say where there is nothing to choose, with a link that helps.
    """

    choices: tuple[Offer, ...] = ()
    closed: bool = True
    none: str = ""
    none_url: str = ""
    none_act: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """Offers and hints by the pattern of a field's name; ``units`` that only the tenant knows, such as money's."""

    offers: Mapping[str, Offers] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
