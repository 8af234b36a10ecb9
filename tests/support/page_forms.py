"""What a browser would send: the fields of a form in a page's HTML, with the values that stand in them."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

from frontend.views.new_job.draft import NO_BOX


@dataclass(slots=True, kw_only=True)
class PageForm:
    """``values``: name -> text of every enabled field; ``options``: name -> values of a list, in their order."""

    values: dict[str, str] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)


def form_in(html: str, form_id: str) -> PageForm:
    """The form with this id; fields after it are left out. Boxes of one name are one text, as the draft reads them."""
    reader = _Reader(form_id)
    reader.feed(html)
    return reader.form


class _Reader(HTMLParser):
    def __init__(self, form_id: str) -> None:
        super().__init__()
        self.form_id, self.form = form_id, PageForm()
        self.inside, self.select, self.area = False, "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag == "form":
            self.inside = own.get("id") == self.form_id
        if not self.inside:
            return
        name = own.get("name") or ""
        if tag == "input" and name and (own.get("type") not in ("radio", "checkbox") or "checked" in own):
            ticked = self.form.values.get(name, NO_BOX) if own.get("type") == "checkbox" else NO_BOX
            value = own.get("value") or ""
            self.form.values[name] = value if ticked == NO_BOX else f"{ticked}, {value}"
        elif tag == "select":
            self.select = name
            self.form.options[name] = []
        elif tag == "option" and self.select:
            value = own.get("value") or ""
            self.form.options[self.select].append(value)
            if "selected" in own or self.select not in self.form.values:
                self.form.values[self.select] = value
        elif tag == "textarea":
            self.area = name
            self.form.values[name] = ""

    def handle_data(self, data: str) -> None:
        if self.area:
            self.form.values[self.area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.inside = False
        elif tag == "select":
            self.select = ""
        elif tag == "textarea":
            self.area = ""
