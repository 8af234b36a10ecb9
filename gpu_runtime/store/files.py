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


def free_bytes(folder: Path) -> int:
    """Bytes an unprivileged process can still write on the file system of ``folder``."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
