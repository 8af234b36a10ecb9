"""A service's refusal as a page shows it: a sentence, and what is wrong with which field."""

from dataclasses import dataclass, field

from tenants.errors import ApplicationError

_TITLES = {
    402: "This cannot be paid for",
    403: "You may not do this",
    404: "This does not exist",
    409: "The state has changed",
    412: "Somebody else changed it meanwhile",
    413: "This is too large",
    422: "Not everything can be used as it is",
    429: "Too many requests",
    503: "Not available now",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """For `console/parts/refusal.html`. ``fields``: JSON pointer -> sentence with the fix."""

    title: str
    detail: str
    fields: dict[str, str] = field(default_factory=dict)

    def at(self, pointer: str) -> str:
        """What is wrong with one field; empty if nothing is."""
        return self.fields.get(pointer, "")


def refusal_of(error: ApplicationError) -> Refusal:
    """The first sentence per field is kept: one fix at a time is what a form can show."""
    fields: dict[str, str] = {}
    for one in error.errors:
        fields.setdefault(one.pointer, one.detail)
    title = _TITLES.get(error.status, "This was refused")
    return Refusal(title=title, detail=error.detail, fields=fields)
