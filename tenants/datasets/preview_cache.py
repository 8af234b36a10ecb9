"""Answers about sealed versions, kept as files under the state folder: a version never changes, so neither do they.

The least recently used go when the folder outgrows its limit: looked at by the hour, and by every process that has
written an eighth of it. Losing all of it costs only time.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from tenants.datasets.preview_child import busy

MAKER_WAIT_S = 100.0  # longer than any reader may take
_LOOK_EVERY_S = 0.05


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
    _count(len(content))


def open_file(version_id: uuid.UUID, name: str, make: Callable[[Path], None]) -> BinaryIO:
    """A kept file, open for reading; where there is none, ``make`` writes it to the place it is given.

    One maker per file, of all threads and processes: others wait for what it makes. Nothing is kept of one that
    raises. Raises ApplicationError 503 where that takes too long.
    """
    path = _folder(version_id) / name
    kept = _opened(path)
    if kept is not None:
        return kept
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_maker(path.with_name(f".{name}.lock")):
        kept = _opened(path)
        if kept is not None:
            return kept
        draft = path.with_name(f".{uuid.uuid4().hex}")
        try:
            make(draft)
            file = draft.open("rb")  # before it can be trimmed
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    _count(os.fstat(file.fileno()).st_size)
    return file


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


def _opened(path: Path) -> BinaryIO | None:
    """Counts as used now."""
    try:
        file = path.open("rb")
        os.utime(path)
    except OSError:
        return None
    return file


@contextlib.contextmanager
def _only_maker(lock: Path) -> Iterator[None]:
    """The lock ends with its process, whatever ends that."""
    give_up_at_s = time.monotonic() + MAKER_WAIT_S
    with lock.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_at_s:
                    raise busy() from None
                time.sleep(_LOOK_EVERY_S)
        yield


def _count(size_bytes: int) -> None:
    if _written.add(size_bytes) >= settings.JOYNEXUS_PREVIEW_MAX_BYTES // 8:
        _written.clear()
        trim()


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
