"""CSV answers: asked for with `Accept: text/csv` or `?format=csv`, streamed row by row, harmless in spreadsheets."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header
from rest_framework.renderers import JSONRenderer

from tenants.requests import TenantRequest

MEDIA_TYPE = "text/csv"
_ROWS_PER_CHUNK = 1000
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class CsvRenderer(JSONRenderer):
    """Makes CSV negotiable. The views send their rows themselves; what is left to render is a refusal, in JSON."""

    media_type = MEDIA_TYPE
    format = "csv"


def wants_csv(request: TenantRequest) -> bool:
    renderer: Any = request.accepted_renderer
    return bool(renderer.format == CsvRenderer.format)


def csv_answer(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, name: str) -> StreamingHttpResponse:
    """``rows`` may be a generator of any length; it is read in the server's thread for database work."""
    response = StreamingHttpResponse(in_chunks(_lines(columns, rows)), content_type=f"{MEDIA_TYPE}; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, f"{name}.csv")
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Texts of many rows at a time."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for number, row in enumerate(rows, 1):
        writer.writerow([harmless(cell) for cell in row])
        if number % _ROWS_PER_CHUNK == 0:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def harmless(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe; None is an empty cell."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell


async def in_chunks(lines: Iterator[str]) -> AsyncIterator[bytes]:
    """Texts as the bytes of a streamed answer; each is made in the server's thread for database work."""
    read = sync_to_async(_next, thread_sensitive=True)
    while (text := await read(lines)) is not None:
        yield text.encode()


def _next(lines: Iterator[str]) -> str | None:
    return next(lines, None)
