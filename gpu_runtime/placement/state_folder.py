"""The state folder: private to its user, and held by one runtime at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StateFolderInUse(RuntimeError):
    """Another runtime process works on this folder."""


class StateFolderUnusable(RuntimeError):
    """What must be kept there cannot be: no folder, no permission, no room, or a journal that cannot be opened."""


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Create ``folder`` (mode 0700) and hold its lock; the lock goes with the process, however that ends.

    Raises StateFolderInUse, StateFolderUnusable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StateFolderUnusable(f"--state {folder}: {error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateFolderInUse(f"--state {folder}: another runtime is using it") from error
        yield
    finally:
        os.close(descriptor)
