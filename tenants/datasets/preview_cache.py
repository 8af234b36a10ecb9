"""Answers about sealed versions, kept as files under the state folder: a version never changes, so neither do they.

The least recently used go when the folder outgrows its limit: looked at by the hour, and by every process that has
written an eighth of it. Losing all of it costs only time.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings


class _Written:
    """Bytes this process has written since it looked at the folder last; threads share it, near enough is enough."""

    def __init__(self) -> None:
        self._size_bytes = 0

    def add(self, size_bytes: int) -> int:
        self._size_bytes += size_bytes
        return self._size_bytes

    def clear(self) -> None:
        self._size_bytes = 0


_written = _Written()


def read(version_id: uuid.UUID, name: str) -> bytes | None:
    """A kept answer, which counts as used now."""
    path = _folder(version_id) / name
    try:
        content = path.read_bytes()
        os.utime(path)  # modification times, because few disks keep those of access
    except OSError:  # not kept, or trimmed just now
        return None
    return content


def write(version_id: uuid.UUID, name: str, content: bytes) -> None:
    """Keep an answer, whole or not at all. A full disk is no reason to refuse the answer itself."""
    folder = _folder(version_id)
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as draft:
            draft.write(content)
        Path(draft.name).replace(folder / name)
    if _written.add(len(content)) >= settings.JOYNEXUS_PREVIEW_MAX_BYTES // 8:
        _written.clear()
        trim()


def forget(version_id: uuid.UUID) -> None:
    """Everything about a version that is deleted."""
    shutil.rmtree(_folder(version_id), ignore_errors=True)


def trim(max_bytes: int | None = None) -> int:
    """Remove what was not used for longest until ``max_bytes`` are left. Returns how many files went."""
    limit = settings.JOYNEXUS_PREVIEW_MAX_BYTES if max_bytes is None else max_bytes
    kept_bytes, removed = 0, 0
    for _, size_bytes, path in sorted(_files(), reverse=True):
        kept_bytes += size_bytes
        if kept_bytes > limit:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _files() -> Iterator[tuple[float, int, Path]]:
    """(when it was used last, bytes, file); a file that goes meanwhile is left out."""
    for path in _root().rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield status.st_mtime, status.st_size, path


def _folder(version_id: uuid.UUID) -> Path:
    return _root() / str(version_id)


def _root() -> Path:
    return Path(settings.JOYNEXUS_PREVIEW_ROOT)
