"""Reading a dataset's files within bounds: paths stay inside the root, sizes are checked before parsing."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from gpu_runtime.data.errors import DatasetError

JSON_BYTES_MAX = 32 * 2**20
_watchers: list[Callable[[str], None]] = []
_ESCAPED = re.compile(rb"\\u(?:0000|d[89a-f])", re.IGNORECASE)
_FIELD = re.compile(r"\{(\w+)(?::0?(\d)d)?\}")


def resolve_inside(root: Path, relative: str) -> Path:
    """The file ``relative`` under ``root``; refuses absolute paths, ``..``, links that leave the root."""
    parts = PurePosixPath(relative).parts
    if not parts or relative.startswith("/") or ".." in parts or "\\" in relative or "\0" in relative:
        raise DatasetError("path_outside_dataset", f"path {relative!r} must be relative and stay inside the dataset")
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root.resolve()):
        raise DatasetError("path_outside_dataset", f"path {relative!r} leads out of the dataset", file=relative)
    return path


def watch_reads(watcher: Callable[[str], None]) -> None:
    """Call ``watcher`` with every file about to be read: whoever outlives a killed reader can name its last file."""
    _watchers.append(watcher)


def existing_file(root: Path, relative: str) -> Path:
    """``resolve_inside`` for a regular file that must exist."""
    path = resolve_inside(root, relative)
    if not path.is_file():
        raise DatasetError("file_missing", f"{relative} is missing", file=relative)
    for watcher in _watchers:
        watcher(relative)
    return path


def fill_template(template: str, **values: int | str) -> str:
    """Fill ``{name}`` and ``{name:03d}`` only: ``str.format`` would allow attribute access and huge widths."""

    def fill(match: re.Match[str]) -> str:
        name, width = match.groups()
        if name not in values:
            raise DatasetError(
                "path_template", f"path template {template!r} uses {name!r}; allowed: {', '.join(values)}"
            )
        return str(values[name]).zfill(int(width or 0))

    filled = _FIELD.sub(fill, template)
    if "{" in filled or "}" in filled:
        raise DatasetError(
            "path_template", f"path template {template!r} is malformed; allowed: {{name}}, {{name:03d}}"
        )
    return filled


def is_storable(value: Any) -> bool:
    """Whether UTF-8 and every database can hold the texts in a JSON value: no half surrogate pairs, no NUL."""
    text = json.dumps(value, ensure_ascii=False)
    return "\\u0000" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def parse_json(content: bytes, relative: str, *, line: int | None = None) -> Any:
    """Parse JSON; malformed text, a wrong encoding or absurd nesting become a DatasetError."""
    try:
        value = json.loads(content.decode())
        if _ESCAPED.search(content) and not is_storable(value):  # only an escape gets such text through UTF-8
            raise ValueError("a text holds NUL or half a surrogate pair")
        return value
    except (ValueError, RecursionError) as error:
        place = f"{relative} line {line}" if line is not None else relative
        raise DatasetError("metadata_unreadable", f"{place} is not valid JSON: {error}", file=relative) from error


def read_json_object(root: Path, relative: str) -> dict[str, Any]:
    """A JSON file whose top level is an object."""
    path = existing_file(root, relative)
    size = path.stat().st_size
    if size > JSON_BYTES_MAX:
        raise DatasetError(
            "metadata_too_large", f"{relative} has {size} bytes; at most {JSON_BYTES_MAX} are allowed", file=relative
        )
    value = parse_json(path.read_bytes(), relative)
    if not isinstance(value, dict):
        raise DatasetError("metadata_unreadable", f"{relative} must hold a JSON object", file=relative)
    return value


def iter_json_lines(root: Path, relative: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, one in memory at a time; empty lines are skipped."""
    path = existing_file(root, relative)
    with path.open("rb") as file:
        number = 0
        while line := file.readline(JSON_BYTES_MAX):
            number += 1
            if len(line) == JSON_BYTES_MAX:
                raise DatasetError(
                    "metadata_too_large", f"{relative} line {number} has over {JSON_BYTES_MAX} bytes", file=relative
                )
            if not line.strip():
                continue
            row = parse_json(line, relative, line=number)
            if not isinstance(row, dict):
                raise DatasetError(
                    "metadata_unreadable", f"{relative} line {number} must be a JSON object", file=relative
                )
            yield row
