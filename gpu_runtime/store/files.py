"""Files that are either whole or absent, whatever dies."""

import os
import shutil
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Write, fsync and rename, so that a reader sees the old file or the new one. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or an unlink inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_unfinished(root: Path) -> None:
    """Remove the hidden ``.*.tmp`` and ``.*.old`` entries that a killed writer left under ``root``."""
    for suffix in ("tmp", "old"):
        for path in list(root.rglob(f".*.{suffix}")):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def bytes_of(path: Path) -> int:
    """Bytes of a file, or of every file in a folder; 0 for what is not there."""
    if path.is_file():
        return path.stat().st_size
    return sum(inside.stat().st_size for inside in path.rglob("*") if inside.is_file())


def remove(path: Path) -> int:
    """Remove a file or a folder, whole or not at all to whoever looks; returns its bytes. Raises OSError.

    A folder is renamed first: what a kill leaves of it is hidden, and swept at the next start.
    """
    if path.is_file():
        size = path.stat().st_size
        path.unlink()
    elif path.is_dir():
        size = bytes_of(path)
        doomed = path.with_name(f".{path.name}.{os.getpid()}.old")
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    else:
        return 0
    sync_folder(path.parent)
    return size


def free_bytes(folder: Path) -> int:
    """Bytes an unprivileged process can still write on the file system of ``folder``."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
