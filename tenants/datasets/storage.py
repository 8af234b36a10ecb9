"""Where dataset bytes lie: `<root>/<tenant>/<version>` once ready, `<root>/.incoming/` before. Names are ours.

Everything is on one file system, so a version appears at its place whole or not at all.
"""

import os
import shutil
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from tenants.errors import ApplicationError

_INCOMING = ".incoming"
_ABANDONED_AFTER_S = 24 * 3600


def storage_key(tenant_id: uuid.UUID, version_id: uuid.UUID) -> str:
    """The place of a ready version, relative to the dataset root."""
    return f"{tenant_id}/{version_id}"


def stored_path(key: str) -> Path:
    """Absolute place of a storage key. Raises ValueError for a key that leaves the root."""
    root = Path(settings.JOYNEXUS_DATASET_ROOT)
    path = (root / key).resolve()
    if not path.is_relative_to(root) or path == root:
        raise ValueError(f"storage key {key!r} leaves the dataset root")
    return path


def received_path(version_id: uuid.UUID) -> Path | None:
    """The received archive or folder of a version, None when it is not (or no longer) there."""
    found = [path for path in (_archive(version_id), _folder(version_id)) if path.exists()]
    return found[0] if found else None


def extraction_path(version_id: uuid.UUID) -> Path:
    """An empty place to unpack a version; what an earlier try left there is removed."""
    path = incoming() / f"{version_id}.unpacked"
    shutil.rmtree(path, ignore_errors=True)
    return path


def upload_path() -> Path:
    """A fresh place for a streamed upload."""
    return incoming() / f"upload-{uuid.uuid4()}"


def chunks_path(upload_id: uuid.UUID) -> Path:
    """Where the chunks of a resumable upload are put one after the other."""
    return incoming() / f"{upload_id}.part"


def size_of(source: Path) -> int:
    """Bytes of a folder or file. Raises ApplicationError if it is neither."""
    if source.is_dir():
        return sum(path.lstat().st_size for path in source.rglob("*") if not path.is_dir())
    if not source.is_file():
        raise ApplicationError(
            code="source_missing", status=422, detail=f"{str(source)!r} is neither a folder nor a zip file."
        )
    return source.stat().st_size


def take_in(source: Path, version_id: uuid.UUID) -> int:
    """Take a received upload (linked) or a folder or archive of the server (copied) as a version's bytes.

    The upload keeps its own name too, so what is rolled back can be taken in again; its owner removes that.
    Returns its size in bytes. Raises ApplicationError if the source is neither.
    """
    size_bytes = size_of(source)
    if source.is_dir():
        shutil.copytree(source, _folder(version_id), symlinks=True)  # links are kept: validation refuses them by name
        return size_bytes
    _archive(version_id).unlink(missing_ok=True)  # of an earlier try that was killed
    if source.parent == incoming():
        os.link(source, _archive(version_id))
    else:
        shutil.copyfile(source, _archive(version_id))
    return size_bytes


def put_in_place(path: Path, key: str) -> None:
    """Move a validated folder to its storage key, atomically. What an earlier attempt put there is the same: kept."""
    target = stored_path(key)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.exists():
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.replace(path, target)


def discard(version_id: uuid.UUID, key: str = "") -> None:
    """Remove a version's bytes, wherever they are."""
    _archive(version_id).unlink(missing_ok=True)
    for path in (_folder(version_id), extraction_path(version_id), *([stored_path(key)] if key else [])):
        shutil.rmtree(path, ignore_errors=True)


def sweep_incoming(known: Iterable[uuid.UUID]) -> int:
    """Remove what interrupted uploads left: older than a day, of no known version or upload. Returns how many."""
    kept = {str(row_id) for row_id in known}
    oldest = time.time() - _ABANDONED_AFTER_S
    left = [path for path in incoming().iterdir() if path.name.split(".")[0] not in kept]
    abandoned = [path for path in left if path.lstat().st_mtime < oldest]
    for path in abandoned:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    return len(abandoned)


def incoming() -> Path:
    path = Path(settings.JOYNEXUS_DATASET_ROOT) / _INCOMING
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _archive(version_id: uuid.UUID) -> Path:
    return incoming() / f"{version_id}.zip"


def _folder(version_id: uuid.UUID) -> Path:
    return incoming() / f"{version_id}.folder"
