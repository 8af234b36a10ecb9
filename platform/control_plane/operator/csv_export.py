"""CSV of any list of the admin: the columns it shows, whatever the number of rows, in constant memory."""

import html
import json
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import label_for_field, lookup_field
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils.html import strip_tags
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from tenants.scope import platform_scope
from tenants.tables import csv_answer

ROWS_PER_QUERY = 1000


@admin.action(description="Export as CSV", permissions=["view"])
def export_as_csv(screen: "admin.ModelAdmin[Any]", request: HttpRequest, chosen: "QuerySet[Any]") -> HttpResponseBase:
    """The chosen rows, streamed. Read by key, page by page: no cursor stays open while a slow client reads."""
    columns = [str(name) for name in screen.get_list_display(request) if name != "action_checkbox"]
    titles = [capfirst(str(label_for_field(name, screen.model, screen))) for name in columns]
    related = screen.get_list_select_related(request)
    rows = chosen.order_by("pk")
    if related:
        rows = rows.select_related(*related) if not isinstance(related, bool) else rows.select_related()
    return csv_answer(titles, rows_of(rows, columns, screen), name=str(screen.model._meta.verbose_name_plural))


def rows_of(rows: "QuerySet[Any]", columns: Sequence[str], screen: "admin.ModelAdmin[Any]") -> Iterator[list[Any]]:
    """The cells of each row, one query per thousand of them."""
    last: Any = None
    while True:
        with platform_scope():
            page: list[Model] = list((rows.filter(pk__gt=last) if last is not None else rows)[:ROWS_PER_QUERY])
            cells = [[_cell(name, row, screen) for name in columns] for row in page]
        yield from cells
        if len(page) < ROWS_PER_QUERY:
            return
        last = page[-1].pk


def _cell(name: str, row: Model, screen: "admin.ModelAdmin[Any]") -> Any:
    """What the list shows, as plain data: dates in ISO form, money in full, structures as JSON."""
    _, _, value = lookup_field(name, row, screen)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, SafeString):  # markup of ours around a text
        return html.unescape(strip_tags(value))
    return value if value is None or isinstance(value, bool | int) else str(value)
