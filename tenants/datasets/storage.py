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


def take_in(source: Path, version_id: uuid.UUID) -> int:
    """Take a received upload (moved) or a folder or archive of the server (copied) as a version's bytes.

    Returns its size in bytes. Raises ApplicationError if the source is neither.
    """
    if source.is_dir():
        shutil.copytree(source, _folder(version_id), symlinks=True)  # links are kept: validation refuses them by name
        return sum(path.lstat().st_size for path in _folder(version_id).rglob("*") if not path.is_dir())
    if not source.is_file():
        raise ApplicationError(
            code="source_missing", status=422, detail=f"{str(source)!r} is neither a folder nor a zip file."
        )
    if source.parent == incoming():
        os.replace(source, _archive(version_id))
    else:
        shutil.copyfile(source, _archive(version_id))
    return _archive(version_id).stat().st_size


def put_in_place(path: Path, key: str) -> None:
    """Move a validated folder to its storage key, atomically. What an earlier attempt put there is the same: kept."""
    target = stored_path(key)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.exists():
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.replace(path, target)


def discard(version_id: uuid.UUID, key: str = "") -> None:
    """Give a version's bytes back, wherever they are."""
    _archive(version_id).unlink(missing_ok=True)
    for path in (_folder(version_id), extraction_path(version_id), *([stored_path(key)] if key else [])):
        shutil.rmtree(path, ignore_errors=True)


def sweep_incoming(known: Iterable[uuid.UUID]) -> int:
    """Remove what interrupted uploads left behind: older than a day and of no known version. Returns how many."""
    kept = {str(version_id) for version_id in known}
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
