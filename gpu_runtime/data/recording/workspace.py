"""The hidden folder in which a recording grows until it is whole."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


def open_workspace(target: Path) -> tuple[Path, int]:
    """A new folder beside ``target`` and a lock on it (a file descriptor) that dies with the process.

    What killed recordings of the same target left behind is removed: nobody holds their lock.
    """
    prefix = f".{target.name}.recording-"
    for left in target.parent.glob(f"{prefix}*"):
        lock = _lock(left)
        if lock is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    root = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    root.chmod(0o755)
    lock = _lock(root)
    if lock is None:
        raise BlockingIOError(f"another process took {root}")
    return root, lock


def publish(root: Path, target: Path) -> None:
    """Flush every file to disk, then rename: ``target`` appears whole or not at all."""
    for folder, _, names in os.walk(root):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))
    root.rename(target)
    _sync(target.parent)


def _lock(folder: Path) -> int | None:
    """Descriptor of the locked folder; None where another process holds it or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
