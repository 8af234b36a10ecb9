"""Why something could not be made durable. ``code`` goes to callers and into RuntimeStatus.reason."""

import errno
import re
import sqlite3

from safetensors import SafetensorError


class StoreError(Exception):
    """The store refused; nothing was changed."""

    code = "store_error"


class JournalUnwritable(StoreError):
    """The journal's file cannot be written: I/O error, read-only file system, lost permission."""

    code = "journal_unwritable"


class EventsTrimmed(StoreError):
    """A reader asks for events that were forgotten: it would miss some without knowing."""

    code = "events_trimmed"


class StorageUnwritable(StoreError):
    """A file beside the journal cannot be written."""

    code = "storage_unwritable"


class DiskFull(StoreError):
    """No room on the disk, or the journal reached its own limit (``journal_max_bytes``)."""

    code = "disk_full"


class PartitionsFull(StoreError):
    """Live partitions already hold ``max_bytes``; room comes back as they are consumed."""

    code = "partitions_full"


class PartitionTooLarge(StoreError):
    """One partition alone passes what its tenant may hold: waiting would not help."""

    code = "partition_too_large"


class PartitionUnreadable(StoreError):
    """A partition's file is missing, truncated or not safetensors."""

    code = "partition_unreadable"


def journal_error(error: sqlite3.Error) -> StoreError:
    """Name what SQLite reported. ``SQLITE_FULL`` is a disk or a page limit; anything else is unwritable."""
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return (DiskFull if full else JournalUnwritable)(f"journal: {error}")


def file_error(error: OSError, what: str) -> StoreError:
    """Name what the file system reported while writing ``what``."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return (DiskFull if full else StorageUnwritable)(f"{what}: {error}")


def storage_error(error: Exception) -> StoreError | None:
    """The storage trouble behind an exception; None when it is about something else.

    safetensors reports what the operating system said as text only.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return file_error(error, "files")
    found = re.search(r"\(os error (\d+)\)", str(error)) if isinstance(error, SafetensorError) else None
    return None if found is None else file_error(OSError(int(found[1]), str(error)), "files")
