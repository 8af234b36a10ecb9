"""Folders that are there completely or not at all, and the hashes of what is in them."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_folder(destination: Path) -> Iterator[Path]:
    """A temporary sibling that becomes ``destination`` when the block ends well, and vanishes when it does not.

    Every file is on disk before the rename. A folder already there is replaced (a restarted job repeats a step).
    """
    destination = Path(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            _sync(path)
        _sync(temporary)
        _replace(temporary, destination)
        _sync(destination.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Readable JSON, one final newline; NaN is refused."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listing(folder: Path) -> list[dict[str, Any]]:
    """``{path, bytes, sha256}`` of every file, in path order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in files
    ]


def _replace(temporary: Path, destination: Path) -> None:
    if not destination.exists():
        temporary.rename(destination)
        return
    old = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.old")
    destination.rename(old)
    temporary.rename(destination)
    shutil.rmtree(old)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
